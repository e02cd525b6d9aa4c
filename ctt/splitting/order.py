"""Measured orders of convergence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from ctt.config.error import InputError
from ctt.dynamics.operator import Constrained, Operator
from ctt.splitting.integrate import as_operator, integrate
from ctt.splitting.scheme import Scheme
from ctt.typing import State


@dataclass(frozen=True)
class Convergence:
    """Errors of a scheme on a sequence of grids.

    Attributes:
        steps: numbers of steps.
        errors: largest difference from the reference at the final time, for each grid.
    """

    steps: tuple[int, ...]
    errors: tuple[float, ...]

    @property
    def slope(self) -> float:
        """The order: least-squares slope of ``log error`` against ``log dt``."""
        return float(-np.polyfit(np.log(self.steps), np.log(self.errors), 1)[0])

    @property
    def pairwise(self) -> tuple[float, ...]:
        """The order seen between each grid and the next."""
        n, e = np.log(self.steps), np.log(self.errors)
        return tuple(float(x) for x in -(e[1:] - e[:-1]) / (n[1:] - n[:-1]))


def observed_order(
    operators: Sequence[Any],
    u0: State,
    *,
    scheme: str | Scheme = "strang",
    substep: str = "midpoint",
    steps: Sequence[int] = (8, 16, 32, 64),
    horizon: float = 1.0,
    reference: State | None = None,
) -> float:
    """Return the measured order of a scheme on a problem.

    Measure in float64 (``with jax.enable_x64(True)``): in float32 round-off soon hides the error.

    Args:
        operators: functions ``f(t, u)``, operators, or projections.
        u0: state at time 0.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter.
        steps: at least two different numbers of steps.
        horizon: final time.
        reference: the state at `horizon`; None: see `measure_convergence`.

    Returns:
        The least-squares slope of the errors against the step, in log-log.

    Raises:
        InputError: see `measure_convergence`.

    Example:
        >>> f = lambda t, u: jnp.array([u[1], 0.0])
        >>> g = lambda t, u: jnp.array([0.0, -jnp.sin(u[0])])
        >>> with jax.enable_x64(True):
        ...     slope = observed_order((f, g), jnp.array([1.0, 0.0]), scheme="strang", substep="midpoint")
        >>> round(slope, 1)
        2.0
    """
    return measure_convergence(
        operators, u0, scheme=scheme, substep=substep, steps=steps, horizon=horizon, reference=reference
    ).slope


def measure_convergence(
    operators: Sequence[Any],
    u0: State,
    *,
    scheme: str | Scheme = "strang",
    substep: str = "midpoint",
    steps: Sequence[int] = (8, 16, 32, 64),
    horizon: float = 1.0,
    reference: State | None = None,
) -> Convergence:
    """Measure a scheme's errors on a sequence of grids.

    The default reference is independent of every scheme here: the unsplit equation, integrated by
    diffrax's Dopri8 with steps adapted to round-off. Where an operator is a projection or ends on a
    constraint set there is no unsplit equation to integrate; the reference is then the scheme itself
    with 8 times the most steps, which shows the order but not that the limit is the right one.

    Args:
        operators: functions ``f(t, u)``, operators, or projections.
        u0: state at time 0.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter.
        steps: at least two different numbers of steps.
        horizon: final time.
        reference: the state at `horizon`, if known.

    Returns:
        The errors in the maximum norm.

    Raises:
        InputError: fewer than two numbers of steps, or an error that is zero or not finite.
    """
    grids = tuple(int(n) for n in steps)
    if len(set(grids)) < 2:
        raise InputError(f"`steps` must hold at least two different numbers, got {grids}. Pass e.g. (8, 16, 32, 64).")

    def solve(n: int) -> State:
        return jax.jit(lambda u: integrate(operators, u, scheme=scheme, substep=substep, steps=n, horizon=horizon))(u0)

    if reference is None:
        parts = [as_operator(value) for value in operators]
        is_smooth = all(isinstance(p, Operator) and not isinstance(p, Constrained) for p in parts)
        reference = _solve_unsplit(parts, u0, horizon) if is_smooth else solve(8 * max(grids))
    errors = tuple(_distance(solve(n), reference) for n in grids)
    if not all(np.isfinite(e) and e > 0 for e in errors):
        raise InputError(
            f"The errors {errors} at {grids} steps have no logarithm: the scheme is exact on this problem or "
            "unstable. Choose another problem or more steps."
        )
    return Convergence(grids, errors)


def _solve_unsplit(operators: Sequence[Any], u0: State, horizon: float) -> State:
    def field(t: Any, u: State, args: Any) -> State:
        del args
        return jax.tree.map(lambda *leaves: sum(leaves), *(p.vector_field(t, u) for p in operators))

    epsilon = float(jnp.finfo(jnp.result_type(*jax.tree.leaves(u0), jnp.float32)).eps)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Dopri8(),
        t0=0.0,
        t1=horizon,
        dt0=None,
        y0=u0,
        stepsize_controller=diffrax.PIDController(rtol=50 * epsilon, atol=50 * epsilon),
        max_steps=100_000,
    )
    assert solution.ys is not None
    return jax.tree.map(lambda x: x[-1], solution.ys)


def _distance(u: State, v: State) -> float:
    return float(max(jnp.max(jnp.abs(a - b)) for a, b in zip(jax.tree.leaves(u), jax.tree.leaves(v), strict=True)))
