"""The observed order of the configured scheme on the configured model."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ctt.certificates.check import Check, Outcome, exact_arithmetic
from ctt.certificates.promise import Promise, promise_order
from ctt.certificates.shrink import shrink
from ctt.config.compatibility import check_refinable, limit_problem
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config
from ctt.config.stage import split_stages
from ctt.controls.stack import Controls
from ctt.controls.timeline import TimedOperator, operators_in_time
from ctt.dynamics.normalization import Normalization
from ctt.dynamics.placement import PostNormalized, TangentNormalized
from ctt.models.build import build_model
from ctt.models.classifier import Classifier
from ctt.models.evolution import Evolution
from ctt.splitting.integrate import build_marcher
from ctt.splitting.order import Convergence, build_grid_solver, distance, quick_options, solve_unsplit
from ctt.typing import State, Time

TOLERANCE = 0.1
"""How far an observed order may fall short of a promised one."""

ROUGH_TOLERANCE = 0.3
"""The same where a field has kinks."""

_FLOOR = 1e-12
"""Relative errors below this are round-off."""


@dataclasses.dataclass(frozen=True)
class Observation(Convergence):
    """Errors on finer and finer grids, as many as it took to see an order.

    Attributes:
        is_exact: whether even the coarsest error is round-off.
    """

    is_exact: bool = False

    @property
    def fitted(self) -> float:
        """The least-squares slope over the four finest grids."""
        return Convergence(self.steps[-4:], self.errors[-4:]).slope

    @property
    def rough_fit(self) -> float:
        """The least-squares slope over all grids but the two coarsest."""
        return Convergence(self.steps[2:], self.errors[2:]).slope

    @property
    def is_settled(self) -> bool:
        """Whether there are four grids, and the two finest slopes agree."""
        return len(self.steps) >= 4 and abs(self.pairwise[-1] - self.pairwise[-2]) < TOLERANCE

    def judge(self, promised: float, *, is_rough: bool = False) -> Outcome:
        """Return whether a promised order is kept.

        A slope that still moves towards the promise, or one of too few grids, decides nothing. Where a field
        has kinks the error depends on where in a step they are crossed, and slopes scatter: the fit over all
        grids but the two coarsest decides, with a tolerance of 0.3.

        Args:
            promised: the order.
            is_rough: whether a field has kinks.
        """
        if self.is_exact:
            return "holds"
        if is_rough:
            if len(self.steps) < 6:
                return "not resolved"
            return "holds" if self.rough_fit >= promised - ROUGH_TOLERANCE else "does not hold"
        if len(self.steps) < 4 or math.isinf(promised):
            return "not resolved" if len(self.steps) < 4 else "does not hold"
        if abs(self.pairwise[-1] - self.pairwise[-2]) > 2 * TOLERANCE:
            return "not resolved"
        if self.pairwise[-1] >= promised - TOLERANCE:
            return "holds"
        gap, before = promised - self.pairwise[-1], promised - self.pairwise[-2]
        return "not resolved" if gap < 0.7 * before else "does not hold"


def observe(
    solve: Callable[[State, int], State],
    u0: State,
    reference: State,
    grids: Sequence[int],
    *,
    is_rough: bool = False,
    promised: float | None = None,
) -> Observation:
    """Measure errors on finer and finer grids until their slope settles or they are round-off.

    Args:
        solve: the state at the horizon on a grid of so many steps.
        u0: initial state.
        reference: the state at the horizon.
        grids: numbers of steps, increasing.
        is_rough: whether a field has kinks, so that all grids are looked at.
        promised: an order; finer grids are looked at while a slope that has settled still moves towards it.
    """
    floor = _FLOOR * float(max(jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(reference)))
    steps: list[int] = []
    errors: list[float] = []
    for grid in grids:
        error = distance(solve(u0, grid), reference)
        if not steps and error <= floor:
            return Observation((grid,), (error,), is_exact=True)
        if math.isfinite(error) and error <= floor:
            break
        if math.isfinite(error):
            steps.append(grid)
            errors.append(error)
        observed = Observation(tuple(steps), tuple(errors))
        is_decided = promised is None or observed.judge(promised) != "not resolved"
        if not is_rough and observed.is_settled and is_decided:
            break
    return Observation(tuple(steps), tuple(errors))


def certify_order(config: Config) -> Check:
    """Measure the order of a config's discretisation on a small model of its kind, in float64.

    The model has the operators, the placement, the basis, the sampling and the scheme of the config, in a small
    size (width, tokens, knots) and with random weights at which the fields are of order one: initial weights
    are so small that errors would drown in round-off. Steps are aligned with the knots. The reference is
    independent of every scheme: the unsplit equation, projected onto the tangent space of the constraint set
    if there is one, integrated by diffrax's Dopri8 to round-off. Constraint sets are exact (eps = 0).

    Args:
        config: a config.

    Returns:
        The check that the observed order is the promised one, and that the model's own loop is the scheme.

    Raises:
        InputError: the config cannot be used, or has no limit as the step goes to 0.
    """
    config = resolve_config(config)
    check_refinable(config, "An order certificate")
    with exact_arithmetic():
        small = shrink(config)
        model = randomize(build_model(small, seed=0))
        return _certify(small, model)


def _certify(config: Config, model: Classifier) -> Check:
    evolutions, knots = model.evolutions, sum(e.controls.basis.num_coefficients for e in model.evolutions)
    promise = promise_order(config, evolutions[0])
    height, width, channels = config.data.image_shape or (0, 0, 0)
    images = jnp.asarray(np.random.default_rng(0).uniform(0, 255, (1, height, width, channels)))
    solvers = [_build_grid_solver(evolution) for evolution in evolutions]

    def solve(images: State, steps: int) -> State:
        """Return the final state with so many steps in all, the same number a knot in every stage."""
        return model.march(images, lambda stage, u: solvers[stage](u, _share(evolutions[stage], steps, knots)))

    own = jax.jit(lambda x: model.march(x, lambda stage, u: evolutions[stage](u)[0]), compiler_options=quick_options())
    difference = distance(model.march(images, lambda n, u: solvers[n](u, evolutions[n].steps)), own(images))
    is_rough = config.model.activation == "relu" and "feedforward" in config.model.operators and promise.order > 1
    grids = [knots * factor for factor in _factors(is_merged=evolutions[0].is_merged, is_rough=is_rough)]
    if limit_problem(config) is not None:
        reference = solve(images, 4 * grids[-1])
    else:
        reference = model.march(images, lambda stage, u: _solve_limit(evolutions[stage], u, config))
    observed = observe(solve, images, reference, grids, is_rough=is_rough, promised=promise.order)
    outcome = observed.judge(promise.order, is_rough=is_rough)
    if not difference <= 1e-9:
        outcome = "does not hold"
    return _describe(config, promise, observed, outcome, difference, is_rough)


def _share(evolution: Evolution, steps: int, knots: int) -> int:
    return evolution.controls.basis.num_coefficients * steps // knots


def _build_grid_solver(evolution: Evolution) -> Callable[[State, int], State]:
    assert evolution.scheme is not None  # `check_refinable` refuses the literal scheme.
    marcher = build_marcher(
        operators_in_time(evolution.controls),
        scheme=evolution.scheme,
        substep=[method.name for method in evolution.substeps],
        sampling="step",
        allow_reduced_order=True,  # The model was asked when it was built.
    )
    return build_grid_solver(marcher, evolution.controls.basis.horizon, compiler_options=quick_options())


def _factors(*, is_merged: bool, is_rough: bool) -> list[int]:
    """Return numbers of steps a knot: doubled, or with kinks more of them, whose scatter the fit averages.

    Where letters join two steps, nodal controls jump half way between nodes, so the numbers are odd.
    """
    factors = [2**k for k in range(1, 9)]
    if is_rough:
        factors = sorted({*factors, *(3 * 2**k for k in range(7)), *(5 * 2**k for k in range(1, 6))})
    return [factor + 1 for factor in factors if factor % 2 == 0] if is_merged else factors


def _solve_limit(evolution: Evolution, u0: State, config: Config) -> State:
    """Return the solution of the dynamics to which the scheme converges.

    For `post` that is the field projected onto the tangent space of the set, in the moving frame.
    """
    controls, horizon = evolution.controls, evolution.controls.basis.horizon
    operators, breakpoints, options = operators_in_time(controls), _breakpoints(controls), quick_options()
    if config.normalization.placement != "post":
        return solve_unsplit(operators, u0, horizon, breakpoints=breakpoints, compiler_options=options)
    norm = _last_normalization(controls)
    fields = [_ProjectedField(f) for f in operators]
    v1 = solve_unsplit(fields, norm.retract(u0), horizon, breakpoints=breakpoints, compiler_options=options)
    return norm.leave_frame(v1)


def _last_normalization(controls: Controls) -> Normalization:
    (*_, placed) = controls.at(controls.basis.horizon)
    assert isinstance(placed, PostNormalized)
    assert isinstance(placed.normalization, Normalization)
    return placed.normalization


def _describe(
    config: Config, promise: Promise, observed: Observation, outcome: Outcome, difference: float, is_rough: bool
) -> Check:
    splitting = config.splitting
    substep = splitting.substep_text
    if observed.is_exact:
        summary = f"exact: error {observed.errors[0]:.1e} at {observed.steps[0]} steps"
    elif len(observed.steps) < 2:
        summary = "errors are round-off or not finite on every grid"
    elif is_rough and len(observed.steps) > 3:
        summary = f"observed {observed.rough_fit:.2f} (fit, with kinks), promised {promise.order:g}"
    else:
        summary = f"observed {observed.pairwise[-1]:.2f} (fit {observed.fitted:.2f}), promised {promise.order:g}"
    has_slopes = len(observed.steps) > 1
    values = {
        "scheme": splitting.scheme,
        "substep": substep,
        "placement": config.normalization.placement,
        "affine": config.normalization.affine,
        "basis": config.controls.basis,
        "promised": promise.order if math.isfinite(promise.order) else None,
        "limits": list(promise.limits),
        "steps": list(observed.steps),
        "errors": list(observed.errors),
        "slopes": list(observed.pairwise) if has_slopes else [],
        "fitted": observed.fitted if has_slopes else None,
        "width": max(stage.model.width for stage in split_stages(config)),
        "knots": config.controls.knots,
        "horizon": splitting.horizon,
        "loop_difference": difference,
    }
    reason = "; ".join(promise.limits)
    if not difference <= 1e-9:
        reason = f"the model's own loop differs from its scheme by {difference:.1e}"
    return Check(
        f"order of {splitting.scheme} + {substep}, {config.normalization.placement}", outcome, summary, reason, values
    )


def randomize(module: Any, *, seed: int = 0, size: float = 0.8) -> Any:
    """Return a module with weights at which its fields are of order one.

    Kernels have a standard deviation of `size` over the root of their inputs; everything else is moved by a tenth.

    Args:
        module: a module with its initial weights.
        seed: seed of the weights.
        size: standard deviation of ``kernel * sqrt(inputs)``.
    """
    generator = np.random.default_rng(seed)
    graphdef, params, rest = nnx.split(module, nnx.Param, ...)

    def draw(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        noise = generator.standard_normal(leaf.shape)
        if "kernel" in jax.tree_util.keystr(path) and leaf.ndim >= 2:
            return jnp.asarray(size * noise / np.sqrt(leaf.shape[-2]), leaf.dtype)
        return leaf + jnp.asarray(0.1 * noise, leaf.dtype)

    return nnx.merge(graphdef, jax.tree_util.tree_map_with_path(draw, params), rest)


@dataclasses.dataclass(frozen=True)
class _ProjectedField:
    """The dynamics to which `post` converges: the field projected onto the tangent space of the set."""

    timed: TimedOperator

    def vector_field(self, t: Time, u: State) -> State:
        placed = self.timed.controls.at(t)[self.timed.index]
        assert isinstance(placed, PostNormalized)
        return TangentNormalized(placed.operator, placed.normalization).vector_field(t, u)  # pyright: ignore[reportArgumentType]


def _breakpoints(controls: Controls) -> list[float]:
    """Return the times at which a control jumps: knots, and half way between nodes for nodal controls."""
    knots, horizon = controls.basis.num_coefficients, controls.basis.horizon
    pieces = 2 * knots if controls.nodal else knots
    return [horizon * i / pieces for i in range(1, pieces)]
