"""`integrate`: any functions ``f(t, u)`` or projections, any scheme, a fixed grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from ctt.config.error import InputError
from ctt.dynamics.operator import Operator, Projection
from ctt.splitting.rollout import rollout
from ctt.splitting.scheme import Letter, Scheme, Word, build_scheme
from ctt.splitting.step import apply_letter, split_step
from ctt.splitting.substep import Substep, build_substep
from ctt.typing import State, Time, VectorField


@dataclass(frozen=True)
class FunctionOperator:
    """A plain function ``f(t, u)`` as an operator.

    Attributes:
        function: the right-hand side.
    """

    function: VectorField

    def vector_field(self, t: Time, u: State) -> State:
        """Return ``f(t, u)``.

        Args:
            t: time.
            u: state.
        """
        return self.function(t, u)


def as_operator(value: Any) -> Operator | Projection:
    """Return `value` as an operator.

    Args:
        value: a function ``f(t, u)``, an operator, or a projection.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(value, Operator | Projection):
        return value
    if callable(value):
        return FunctionOperator(value)
    raise InputError(
        f"An operator must be a function f(t, u), an object with `vector_field` or one with `project`, "
        f"got {type(value).__name__}. Wrap it in a function."
    )


def integrate(
    operators: Sequence[Any],
    u0: State,
    *,
    scheme: str | Scheme = "strang",
    substep: str = "midpoint",
    steps: int = 32,
    horizon: Time = 1.0,
    t0: Time = 0.0,
) -> State:
    """Integrate ``u_t = f_1(t, u) + f_2(t, u) + ...`` by operator splitting on a uniform grid.

    Jittable, differentiable and vmappable; `steps` is static, `u0`, `horizon` and `t0` may be traced.

    Args:
        operators: functions ``f(t, u)``, operators, or projections onto constraint sets.
        u0: state at `t0`: an array or a pytree of arrays.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter.
        steps: number of steps, >= 1.
        horizon: length of the time interval; negative integrates backwards.
        t0: initial time.

    Returns:
        The state at ``t0 + horizon``.

    Raises:
        InputError: an unknown name, no step, or something that is no operator.

    References:
        MATH.md section 5.

    Example:
        >>> rotate = lambda t, u: jnp.array([u[1], -u[0]])
        >>> decay = lambda t, u: -u
        >>> u1 = integrate((rotate, decay), jnp.array([1.0, 0.0]), steps=64)
        >>> bool(jnp.allclose(u1, jnp.exp(-1.0) * jnp.array([jnp.cos(1.0), -jnp.sin(1.0)]), atol=1e-4))
        True
    """
    parts = [as_operator(value) for value in operators]
    if steps < 1:
        raise InputError(f"`steps` must be >= 1, got {steps}. Pass a positive number of steps.")
    rule, method = build_scheme(scheme, len(parts)), build_substep(substep)
    dt = horizon / steps
    times = t0 + dt * jnp.arange(steps)
    if rule.merge_ends:
        return _integrate_merged(rule, method, operators=parts, u=u0, times=times, dt=dt)

    def step(u: State, t: Time, n: Any) -> State:
        del n
        return split_step(rule, method, operators=parts, u=u, t=t, dt=dt)

    return rollout(step, times, u0)[0]


def _integrate_merged(
    scheme: Scheme, substep: Substep, *, operators: Sequence[Operator | Projection], u: State, times: Any, dt: Time
) -> State:
    """Join the last letter of each step with the first of the next: one flow over both fractions."""
    letters = scheme.words[0][1].letters
    first, inner, last = letters[0], letters[1:-1], letters[-1]
    joined = Letter(first.operators, first.fraction + last.fraction)
    starts = [{o: Word(letters[:i]).total(o) for o in letter.operators} for i, letter in enumerate(letters)]

    def apply(letter: Letter, position: int, u: State, t: Time) -> State:
        clocks = {o: t + start * dt for o, start in starts[position].items()}
        return apply_letter(letter, substep, operators=operators, clocks=clocks, u=u, dt=dt)

    def apply_inner(u: State, t: Time) -> State:
        for position, letter in enumerate(inner, start=1):
            u = apply(letter, position, u, t)
        return u

    def step(u: State, t: Time, n: Any) -> State:
        del n
        return apply(joined, len(letters) - 1, apply_inner(u, t), t)

    u = apply(first, 0, u, times[0])
    if times.shape[0] > 1:
        u = rollout(step, times[:-1], u)[0]
    return apply(last, len(letters) - 1, apply_inner(u, times[-1]), times[-1])
