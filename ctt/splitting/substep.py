"""Substeps: one-step methods that approximate the flow of one letter, and `exact`, the operator's own flow."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ctt.config.error import InputError, suggest
from ctt.typing import Array, State, Time, VectorField


@dataclass(frozen=True)
class Substep:
    """A one-step method for ``u_t = f(t, u)``.

    Attributes:
        name: what messages call it.
        order: order of the method; infinite for `exact`.
        evaluations: evaluations of f in a substep; for `exact` the one evaluation of the flow.
        advance: ``advance(f, t, u, h)``, the approximate flow from t to t + h; None: the operator's own flow.
    """

    name: str
    order: float
    evaluations: int
    advance: Callable[[VectorField, Time, State, Time], State] | None

    @property
    def is_exact(self) -> bool:
        """Whether the operator's own flow is used."""
        return self.advance is None


def add_scaled(u: State, h: Time, du: State) -> State:
    """Return ``u + h du`` leaf by leaf, in the type of `u`.

    Args:
        u: a state.
        h: a factor; a traced one does not widen the type of `u`.
        du: a state of the same structure and shapes; it is cast to the type of `u`.

    Raises:
        InputError: the shapes differ.
    """

    def add(x: Array, dx: Array) -> Array:
        if jnp.shape(dx) not in ((), jnp.shape(x)):
            raise InputError(
                f"A field must have the shape of the state, {list(jnp.shape(x))}, got {list(jnp.shape(dx))}. Correct "
                "the operator's vector_field."
            )
        dtype = jnp.result_type(x)
        return x + jnp.asarray(h, dtype) * jnp.asarray(dx, dtype)

    return jax.tree.map(add, u, du)


def subtract(u: State, v: State) -> State:
    """Return ``u - v`` leaf by leaf, in the type of `u`.

    Args:
        u: a state.
        v: a state of the same structure and shapes.
    """
    return add_scaled(u, -1.0, v)


def sum_states(states: Iterable[State]) -> State:
    """Return the sum of states of one structure, leaf by leaf.

    Args:
        states: at least one state.
    """
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *states)


def _euler(f: VectorField, t: Time, u: State, h: Time) -> State:
    return add_scaled(u, h, f(t, u))


def _midpoint(f: VectorField, t: Time, u: State, h: Time) -> State:
    middle = add_scaled(u, h / 2, f(t, u))
    return add_scaled(u, h, f(t + h / 2, middle))


def _heun(f: VectorField, t: Time, u: State, h: Time) -> State:
    k1 = f(t, u)
    k2 = f(t + h, add_scaled(u, h, k1))
    return add_scaled(u, h / 2, jax.tree.map(jnp.add, k1, k2))


def _rk4(f: VectorField, t: Time, u: State, h: Time) -> State:
    k1 = f(t, u)
    k2 = f(t + h / 2, add_scaled(u, h / 2, k1))
    k3 = f(t + h / 2, add_scaled(u, h / 2, k2))
    k4 = f(t + h, add_scaled(u, h, k3))
    return add_scaled(u, h / 6, jax.tree.map(lambda a, b, c, d: a + 2 * b + 2 * c + d, k1, k2, k3, k4))


SUBSTEPS: dict[str, Substep] = {
    "euler": Substep("euler", order=1, evaluations=1, advance=_euler),
    "midpoint": Substep("midpoint", order=2, evaluations=2, advance=_midpoint),
    "heun": Substep("heun", order=2, evaluations=2, advance=_heun),
    "rk4": Substep("rk4", order=4, evaluations=4, advance=_rk4),
    "exact": Substep("exact", order=math.inf, evaluations=1, advance=None),
}
"""Substeps by name: explicit Euler, the explicit midpoint rule (Runge 1895), Heun's method (1900), the classical
Runge-Kutta method (Kutta 1901), and the flow that an operator brings with it."""


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


def build_substeps(substep: str | Sequence[str], num_operators: int) -> tuple[Substep, ...]:
    """Return a substep for each operator.

    Args:
        substep: one name for all operators, or a name for each.
        num_operators: how many operators there are.

    Raises:
        InputError: a name is unknown, or there are neither one nor `num_operators` names.

    Example:
        >>> [method.name for method in build_substeps("rk4", 2)]
        ['rk4', 'rk4']
    """
    if isinstance(substep, str):
        return (build_substep(substep),) * num_operators
    names = tuple(substep)
    if len(names) != num_operators:
        raise InputError(
            f"`substep` must be one name, or a name for each of the {num_operators} operators, got "
            f"{', '.join(map(str, names)) or 'none'}. Give as many names as there are operators."
        )
    return tuple(build_substep(name) for name in names)
