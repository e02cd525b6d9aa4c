"""Gradient methods by name: each is a rollout of the same signature and the same value."""

from functools import partial

import jax

from ctt.config.error import InputError, suggest
from ctt.splitting.rollout import Rollout, rollout

GRADIENT_METHODS: dict[str, Rollout] = {
    "store": rollout,
    "remat": partial(rollout, transform_body=partial(jax.checkpoint, prevent_cse=False)),
}
"""Gradient methods by name (MATH.md section 7).

`store` keeps the activations of all steps. `remat` keeps the state of each step and computes a
step's activations again in the backward pass: one more forward, memory of one step's activations.
"""


def build_rollout(method: str) -> Rollout:
    """Return the rollout that is differentiated by a method.

    Args:
        method: name of a gradient method.

    Raises:
        InputError: the name is unknown.

    References:
        Griewank and Walther, "Evaluating Derivatives" (2008), chapter 12; Chen et al., arXiv:1604.06174.
    """
    if method not in GRADIENT_METHODS:
        raise InputError(f"`method` must be a known name, got {method!r}: {suggest(method, GRADIENT_METHODS)}.")
    return GRADIENT_METHODS[method]
