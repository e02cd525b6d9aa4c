"""Measured orders of convergence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from ctt.config.error import InputError
from ctt.config.name import SamplingName
from ctt.dynamics.operator import Operator, is_bolted_on
from ctt.splitting.integrate import Marcher, as_inexact, build_marcher
from ctt.splitting.scheme import Scheme
from ctt.splitting.substep import sum_states
from ctt.typing import Array, State


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
    substep: str | Sequence[str] = "midpoint",
    steps: Sequence[int] = (8, 16, 32, 64),
    horizon: float = 1.0,
    sampling: SamplingName = "stage",
    breakpoints: Sequence[float] = (),
    reference: State | None = None,
    allow_reduced_order: bool = False,
) -> float:
    """Return the measured order of a scheme on a problem.

    Measure in float64 (``with jax.enable_x64(True)``): in float32 round-off soon hides the error.

    Args:
        operators: functions ``f(t, u)``, operators, or projections.
        u0: state at time 0.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter, or a name for each operator.
        steps: at least two different numbers of steps.
        horizon: final time.
        sampling: ``stage``, ``midpoint`` or ``step``, see `ctt.integrate`.
        breakpoints: times at which a field jumps, such as the knots of piecewise-constant controls; the
            reference steps exactly to them.
        reference: the state at `horizon`; None: see `measure_convergence`.
        allow_reduced_order: see `ctt.integrate`.

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
        operators,
        u0,
        scheme=scheme,
        substep=substep,
        steps=steps,
        horizon=horizon,
        sampling=sampling,
        breakpoints=breakpoints,
        reference=reference,
        allow_reduced_order=allow_reduced_order,
    ).slope


def measure_convergence(
    operators: Sequence[Any],
    u0: State,
    *,
    scheme: str | Scheme = "strang",
    substep: str | Sequence[str] = "midpoint",
    steps: Sequence[int] = (8, 16, 32, 64),
    horizon: float = 1.0,
    sampling: SamplingName = "stage",
    breakpoints: Sequence[float] = (),
    reference: State | None = None,
    allow_reduced_order: bool = False,
) -> Convergence:
    """Measure a scheme's errors on a sequence of grids.

    The default reference is independent of every scheme here: the unsplit equation, integrated by
    diffrax's Dopri8 with steps adapted to round-off. Where an operator is a projection or ends on a
    constraint set there is no unsplit equation to integrate; the reference is then the scheme itself
    with 32 times the most steps, which shows the order but not that the limit is the right one.

    Args:
        operators: functions ``f(t, u)``, operators, or projections.
        u0: state at time 0.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter, or a name for each operator.
        steps: at least two different numbers of steps.
        horizon: final time.
        sampling: ``stage``, ``midpoint`` or ``step``, see `ctt.integrate`.
        breakpoints: times at which a field jumps, such as the knots of piecewise-constant controls; the
            reference steps exactly to them.
        reference: the state at `horizon`, if known.
        allow_reduced_order: see `ctt.integrate`.

    Returns:
        The errors in the maximum norm.

    Raises:
        InputError: fewer than two numbers of steps, or an error that is zero or not finite.
    """
    grids = tuple(int(n) for n in steps)
    if len(set(grids)) < 2:
        raise InputError(f"`steps` must hold at least two different numbers, got {grids}. Pass e.g. (8, 16, 32, 64).")
    if min(grids) < 1:
        raise InputError(f"`steps` must be >= 1, got {grids}. Pass e.g. (8, 16, 32, 64).")
    u0 = jax.tree.map(as_inexact, u0)
    marcher = build_marcher(
        operators, scheme=scheme, substep=substep, sampling=sampling, allow_reduced_order=allow_reduced_order
    )
    solve = build_grid_solver(marcher, horizon)
    if reference is None:
        is_smooth = all(isinstance(p, Operator) and not is_bolted_on(p) for p in marcher.operators)
        if is_smooth:
            reference = solve_unsplit(marcher.operators, u0, horizon, breakpoints=breakpoints)
        else:
            reference = solve(u0, 32 * max(grids))
    errors = tuple(distance(solve(u0, n), reference) for n in grids)
    if not all(np.isfinite(e) and e > 0 for e in errors):
        raise InputError(
            f"The errors {errors} at {grids} steps have no logarithm: the scheme is exact on this problem or "
            "unstable. Choose another problem or more steps."
        )
    return Convergence(grids, errors)


def quick_options() -> dict[str, Any]:
    """Return compiler options for a program that takes far longer to compile than to run: a third of the time."""
    is_cpu = jax.default_backend() == "cpu"
    return {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False} if is_cpu else {}


def build_grid_solver(
    marcher: Marcher, horizon: float, *, compiler_options: dict[str, Any] | None = None
) -> Callable[[State, int], State]:
    """Return ``solve(u0, steps)``, the state at `horizon` on a uniform grid, compiled once for all grids.

    Args:
        marcher: a scheme together with its operators.
        horizon: final time.
        compiler_options: for `jax.jit`; see `quick_options`.
    """

    @partial(jax.jit, compiler_options=compiler_options)
    def solve(u0: State, steps: Array) -> State:
        dt = horizon / steps

        def step(n: Array, u: State) -> State:
            return marcher.step(u, n * dt, dt, is_last=n == steps - 1)

        return jax.lax.fori_loop(0, steps, step, marcher.begin(u0, jnp.zeros_like(dt), dt))

    return lambda u0, steps: solve(u0, jnp.asarray(steps))


def solve_unsplit(
    operators: Sequence[Any],
    u0: State,
    horizon: float,
    *,
    breakpoints: Sequence[float] = (),
    compiler_options: dict[str, Any] | None = None,
) -> State:
    """Return the solution of the unsplit equation, which shares nothing with the schemes here.

    Diffrax's Dopri8 with steps adapted to round-off, from breakpoint to breakpoint. Not a number where it does not
    come to the end in 100,000 steps.

    Args:
        operators: the operators, all with a `vector_field`.
        u0: state at time 0.
        horizon: final time.
        breakpoints: times in (0, horizon) at which a field jumps.
        compiler_options: for `jax.jit`; see `quick_options`.
    """
    ends = jnp.asarray([0.0, *sorted(t for t in breakpoints if 0 < t < horizon), horizon])
    epsilon = float(jnp.finfo(jnp.result_type(*jax.tree.leaves(u0), jnp.float32)).eps)

    def field(t: Any, u: State, bounds: tuple[Array, Array]) -> State:
        if len(ends) > 2:  # A stage at the end of an interval must not see the next one's field.
            slack = 1e-9 * (bounds[1] - bounds[0])
            t = jnp.clip(t, bounds[0] + slack, bounds[1] - slack)
        return sum_states(p.vector_field(t, u) for p in operators)

    def advance(u: State, bounds: tuple[Array, Array]) -> tuple[State, None]:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Dopri8(),
            t0=bounds[0],
            t1=bounds[1],
            dt0=None,
            y0=u,
            args=bounds,
            stepsize_controller=diffrax.PIDController(rtol=50 * epsilon, atol=50 * epsilon),
            max_steps=100_000,
            adjoint=diffrax.ForwardMode(),
            throw=False,
        )
        assert solution.ys is not None
        is_done = solution.result == diffrax.RESULTS.successful
        return jax.tree.map(lambda x: jnp.where(is_done, x[-1], jnp.nan), solution.ys), None

    solve = jax.jit(lambda u: jax.lax.scan(advance, u, (ends[:-1], ends[1:]))[0], compiler_options=compiler_options)
    return solve(u0)


def distance(u: State, v: State) -> float:
    """Return the largest absolute difference of two states.

    Args:
        u: a state.
        v: a state of the same structure.
    """
    pairs = zip(jax.tree.leaves(u), jax.tree.leaves(v), strict=True)
    return float(jnp.max(jnp.stack([jnp.max(jnp.abs(a - b)) for a, b in pairs])))
