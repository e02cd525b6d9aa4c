"""`integrate`: any functions ``f(t, u)`` or projections, any scheme, a fixed grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctt.config.error import InputError, suggest
from ctt.config.name import SAMPLINGS, SamplingName
from ctt.dynamics.operator import Operator, Projection
from ctt.splitting.compatibility import check_operators
from ctt.splitting.rollout import rollout
from ctt.splitting.scheme import Letter, Scheme, build_scheme
from ctt.splitting.step import apply_letter, split_step, walk_clocks
from ctt.splitting.substep import Substep, build_substeps
from ctt.typing import Array, State, Time, VectorField


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


@dataclass(frozen=True)
class Marcher:
    """A splitting scheme on a grid: what happens before the first step, and in each step.

    For most schemes every step is alike. With `merge_ends` the last letter of a step is joined with the
    first of the next, one flow over both fractions, so that the ends are halves.

    Attributes:
        scheme: the words.
        substeps: the method for each operator.
        operators: the operators.
        sampling: where on a letter's clock interval what depends on time is evaluated, see `split_step`.
    """

    scheme: Scheme
    substeps: tuple[Substep, ...]
    operators: tuple[Operator | Projection, ...]
    sampling: SamplingName = "stage"

    def begin(self, u: State, t: Time, dt: Time) -> State:
        """Return what the first `step` starts from.

        Args:
            u: state at `t`.
            t: time at the start of the first step.
            dt: length of a step.
        """
        if not self.scheme.merge_ends:
            return u
        letter, clocks = walk_clocks(self.scheme.words[0][1], t, dt)[0]
        return self._apply(letter, clocks, u, dt)

    def step(self, u: State, t: Time, dt: Time, *, is_last: Any) -> State:
        """Return the state after a step; with merged ends also what the next step would begin with.

        Args:
            u: what `begin` or `step` returned.
            t: time at the start of the step.
            dt: length of a step.
            is_last: whether no step follows; may be traced.
        """
        if not self.scheme.merge_ends:
            return split_step(
                self.scheme, self.substeps, operators=self.operators, u=u, t=t, dt=dt, sampling=self.sampling
            )
        (first, _), *inner, (last, last_clocks) = walk_clocks(self.scheme.words[0][1], t, dt)
        for letter, clocks in inner:
            u = self._apply(letter, clocks, u, dt, frozen_at=t + dt / 2 if self.sampling == "step" else None)
        fraction = jnp.where(is_last, last.fraction, first.fraction + last.fraction)
        return self._apply(last, last_clocks, u, dt, length=fraction * dt)

    def _apply(self, letter: Letter, clocks: dict[int, Time], u: State, dt: Time, **where: Any) -> State:
        return apply_letter(
            letter,
            self.substeps,
            operators=self.operators,
            clocks=clocks,
            u=u,
            dt=dt,
            sampling=self.sampling,
            **where,
        )


def as_inexact(x: Any) -> Array:
    """Return a leaf of a state as an array of floating type; integers become the default one.

    Args:
        x: a number or an array.
    """
    return jnp.asarray(x) if jnp.issubdtype(jnp.result_type(x), jnp.inexact) else jnp.asarray(x, float)


def build_marcher(
    operators: Sequence[Any],
    *,
    scheme: str | Scheme,
    substep: str | Sequence[str],
    sampling: SamplingName = "stage",
    allow_reduced_order: bool = False,
) -> Marcher:
    """Return a scheme together with its operators, checked against each other.

    Args:
        operators: functions ``f(t, u)``, operators, or projections.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter, or a name for each operator.
        sampling: ``stage``, ``midpoint`` or ``step``, see `split_step`.
        allow_reduced_order: see `integrate`.

    Raises:
        InputError: see `integrate`.
    """
    parts = tuple(as_operator(value) for value in operators)
    rule, methods = build_scheme(scheme, len(parts)), build_substeps(substep, len(parts))
    if sampling not in SAMPLINGS:
        raise InputError(f"`sampling` must be a known name, got {sampling!r}: {suggest(str(sampling), SAMPLINGS)}.")
    check_operators(rule, methods, parts, allow_reduced_order=allow_reduced_order)
    return Marcher(rule, methods, parts, sampling)


def integrate(
    operators: Sequence[Any],
    u0: State,
    *,
    scheme: str | Scheme = "strang",
    substep: str | Sequence[str] = "midpoint",
    steps: int = 32,
    horizon: Time = 1.0,
    t0: Time = 0.0,
    sampling: SamplingName = "stage",
    allow_reduced_order: bool = False,
) -> State:
    """Integrate ``u_t = f_1(t, u) + f_2(t, u) + ...`` by operator splitting on a uniform grid.

    Jittable, differentiable and vmappable; `steps` is static, `u0`, `horizon` and `t0` may be traced.

    Args:
        operators: functions ``f(t, u)``, operators, or projections onto constraint sets.
        u0: state at `t0`: an array or a pytree of arrays.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter, or a name for each operator.
        steps: number of steps, >= 1.
        horizon: length of the time interval; negative integrates backwards.
        t0: initial time.
        sampling: ``stage`` evaluates a field at the substep's stage times; ``midpoint`` freezes what depends on
            time at the middle of each letter, ``step`` at the middle of each step, as networks do with their
            weights.
        allow_reduced_order: let combinations run whose order is lower than the scheme's, such as `yoshida4`
            with a projection.

    Returns:
        The state at ``t0 + horizon``.

    Raises:
        InputError: an unknown name, no step, something that is no operator, or operators that do not go together
            with the scheme (`ctt.splitting.compatibility`).

    References:
        MATH.md section 5.

    Example:
        >>> rotate = lambda t, u: jnp.array([u[1], -u[0]])
        >>> decay = lambda t, u: -u
        >>> u1 = integrate((rotate, decay), jnp.array([1.0, 0.0]), steps=64)
        >>> bool(jnp.allclose(u1, jnp.exp(-1.0) * jnp.array([jnp.cos(1.0), -jnp.sin(1.0)]), atol=1e-4))
        True
    """
    if not isinstance(steps, int | np.integer) or isinstance(steps, bool):
        raise InputError(f"`steps` must be an integer that is not traced, got {steps!r}. Pass e.g. steps=32.")
    if steps < 1:
        raise InputError(f"`steps` must be >= 1, got {steps}. Pass a positive number of steps.")
    marcher = build_marcher(
        operators, scheme=scheme, substep=substep, sampling=sampling, allow_reduced_order=allow_reduced_order
    )
    u0 = jax.tree.map(as_inexact, u0)
    dt = horizon / steps
    times = t0 + dt * jnp.arange(steps)
    u = marcher.begin(u0, times[0], dt)
    return rollout(lambda u, t, n: marcher.step(u, t, dt, is_last=n == steps - 1), times, u)[0]
