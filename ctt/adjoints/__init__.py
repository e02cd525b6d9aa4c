"""Gradient methods on the pure rollout.

* `method`: `store` and `remat`, which compute the same discrete gradient.
"""

from ctt.adjoints.method import GRADIENT_METHODS, build_rollout

__all__ = ["GRADIENT_METHODS", "build_rollout"]
