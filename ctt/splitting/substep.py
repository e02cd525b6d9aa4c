"""Substeps: one-step methods that approximate the flow of one letter."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ctt.config.error import InputError, suggest
from ctt.typing import State, Time, VectorField


@dataclass(frozen=True)
class Substep:
    """A one-step method for ``u_t = f(t, u)``.

    Attributes:
        name: what messages call it.
        order: order of the method.
        evaluations: evaluations of f in a substep.
        advance: ``advance(f, t, u, h)``, the approximate flow from t to t + h.
    """

    name: str
    order: int
    evaluations: int
    advance: Callable[[VectorField, Time, State, Time], State]


def add_scaled(u: State, h: Time, du: State) -> State:
    """Return ``u + h du`` leaf by leaf, in the type of `u`.

    Args:
        u: a state.
        h: a factor; a traced one does not widen the type of `u`.
        du: a state of the same structure and shapes.
    """
    return jax.tree.map(lambda x, dx: x + jnp.asarray(h, jnp.result_type(x)) * dx, u, du)


def _euler(f: VectorField, t: Time, u: State, h: Time) -> State:
    return add_scaled(u, h, f(t, u))


def _midpoint(f: VectorField, t: Time, u: State, h: Time) -> State:
    middle = add_scaled(u, h / 2, f(t, u))
    return add_scaled(u, h, f(t + h / 2, middle))


SUBSTEPS: dict[str, Substep] = {
    "euler": Substep("euler", order=1, evaluations=1, advance=_euler),
    "midpoint": Substep("midpoint", order=2, evaluations=2, advance=_midpoint),
}
"""Substeps by name: explicit Euler, and the explicit midpoint rule (Runge 1895)."""


def build_substep(name: str) -> Substep:
    """Return a substep.

    Args:
        name: its name.

    Raises:
        InputError: the name is unknown.

    Example:
        >>> build_substep("midpoint").order
        2
    """
    if name not in SUBSTEPS:
        raise InputError(f"`substep` must be a known name, got {name!r}: {suggest(str(name), SUBSTEPS)}.")
    return SUBSTEPS[name]
