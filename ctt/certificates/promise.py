"""The order that a config promises: the minimum over everything that can limit it (MATH.md section 5)."""

import math
from dataclasses import dataclass

from ctt.config.compatibility import limit_problem
from ctt.config.schema import Config
from ctt.dynamics.operator import flow_order
from ctt.models.evolution import Evolution


@dataclass(frozen=True)
class Promise:
    """A promised order.

    Attributes:
        order: the order; infinite where every step is exact, 0 where there is no limit to converge to.
        limits: what limits it, in words: every reason of that order.
    """

    order: float
    limits: tuple[str, ...]

    @property
    def text(self) -> str:
        """The promise as a reader says it."""
        order = "exact at any step" if math.isinf(self.order) else f"order {self.order:g}"
        return order if not self.limits else f"{order}: {'; '.join(self.limits)}"


def promise_order(config: Config, evolution: Evolution) -> Promise:
    """Return the order that the discretisation of a config promises.

    Args:
        config: a resolved config.
        evolution: its depth, or that of one of its stages, which have the same operators; abstract or not.
    """
    problem = limit_problem(config)
    if problem is not None or evolution.scheme is None:
        return Promise(0.0, (problem or "the layer is no discretisation",))
    scheme, controls = evolution.scheme, evolution.controls
    limits: list[tuple[float, str]] = []
    assert scheme.order is not None
    if len(controls.names) > 1:
        limits.append((scheme.order, f"the scheme {scheme.name} has order {scheme.order:g} with exact substeps"))
    for name, method in zip(controls.names, evolution.substeps, strict=True):
        order = flow_order(controls.operators[name]) if method.is_exact else method.order
        what = "own flow" if method.is_exact else f"substep {method.name}"
        limits.append((order, f"the {what} of {name} has order {order:g}"))
    if config.normalization.placement == "post":
        limits.append((1.0, "the placement post bolts a projection on after each substep, which caps any scheme at 1"))
    if config.model.activation == "relu" and "feedforward" in controls.names:
        limits.append((2.0, "ReLU has a kink, which caps the order near 2"))
    order = min(value for value, _ in limits)
    return Promise(order, tuple(text for value, text in limits if value == order and not math.isinf(order)))
