"""Every scheme as a solver of diffrax: the same numbers, adaptive steps, dense output, constraints, gradients."""

import itertools
import math

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from ctt.dynamics import PostNormalized
from ctt.splitting import SCHEMES, build_solver, integrate
from ctt.splitting.integrate import as_operator
from ctt.splitting.order import solve_unsplit

pytestmark = pytest.mark.usefixtures("float64")

U0 = np.array([1.0, 0.5])
FORWARD, BACKWARD = np.linspace(0.2, 1.2, 6), np.linspace(1.2, 0.2, 6)
GRIDS = FORWARD, BACKWARD, np.array([0.2, 0.25, 0.5, 0.6, 0.9, 1.2])
SAMPLINGS = pytest.mark.parametrize("sampling", ["stage", "midpoint"])
ALL = pytest.mark.parametrize("scheme", SCHEMES)


def stretch(t, u):
    return jnp.stack([u[1] * (1 + t), jnp.sin(3 * t) * u[0]])


def bend(t, u):
    return jnp.stack([-jnp.sin(u[0]) * jnp.cos(2 * t), u[0] * u[1] - t])


class Growth:
    """``u_t = cos(t) u``, with its flow."""

    def vector_field(self, t, u):
        return jnp.cos(t) * u

    def flow(self, u, t0, t1):
        return u * jnp.exp(jnp.sin(t1) - jnp.sin(t0))


class Circle:
    """A circle that grows with time."""

    def project(self, t, u):
        return (1 + t) * u / jnp.linalg.norm(u)


def start(terms, solver, u0, t0, t1, **options):
    options = {"max_steps": None, "adjoint": diffrax.ForwardMode(), "saveat": diffrax.SaveAt(t1=True)} | options
    return diffrax.diffeqsolve(terms, solver, t0, t1, options.pop("dt0", None), u0, **options)


def follow(operators, times, **options):
    """Take one step of the solver after another, without diffrax's loop."""
    terms, solver = build_solver(operators, **options)
    u, state = jnp.asarray(U0), solver.init(terms, times[0], times[1], jnp.asarray(U0), None)
    for t0, t1 in itertools.pairwise(jnp.asarray(times)):
        u, _, _, state, _ = solver.step(terms, t0, t1, u, None, state, False)
    return u


@pytest.fixture(scope="module")
def march(fast_compilation):
    """Return a function: the states at the end of some grids by diffrax."""

    def run(operators, *grids, **options):
        def solve(u0, times):
            terms, solver = build_solver(operators, **options)
            return start(terms, solver, u0, times[0], times[-1], stepsize_controller=diffrax.StepTo(times)).ys[0]

        compiled = jax.jit(solve, compiler_options=fast_compilation)
        return [compiled(jnp.asarray(U0), jnp.asarray(times)) for times in grids]

    return run


@pytest.fixture(scope="module")
def sweep(fast_compilation):
    """Return a function: the states at the end of some grids by `integrate`."""

    def run(operators, *grids, **options):
        def solve(u0, t0, horizon):
            return integrate(operators, u0, steps=len(FORWARD) - 1, t0=t0, horizon=horizon, **options)

        compiled = jax.jit(solve, compiler_options=fast_compilation)
        return [compiled(jnp.asarray(U0), times[0], times[-1] - times[0]) for times in grids]

    return run


@ALL
def test_on_a_given_grid_diffrax_takes_the_steps_of_the_solver(march, scheme, relative_difference):
    for times, received in zip(GRIDS, march((stretch, bend), *GRIDS, scheme=scheme), strict=True):
        assert relative_difference(received, follow((stretch, bend), times, scheme=scheme)) < 1e-14


@SAMPLINGS
@ALL
def test_the_steps_of_the_solver_are_those_of_integrate(sweep, scheme, sampling, relative_difference):
    options = {"scheme": scheme, "sampling": sampling}
    for times, expected in zip(GRIDS[:2], sweep((stretch, bend), *GRIDS[:2], **options), strict=True):
        assert relative_difference(follow((stretch, bend), times, **options), expected) < 1e-13


@pytest.mark.parametrize(
    ("operators", "options"),
    [
        ((stretch, Circle()), {"scheme": "strang_reversed", "sampling": "midpoint"}),
        ((PostNormalized(Growth(), Circle()), bend), {"scheme": "strang_staggered", "substep": ("exact", "rk4")}),
        ((stretch, bend, Circle()), {"scheme": "swss"}),
        ((Growth(), bend), {"scheme": "strang", "substep": ("exact", "midpoint")}),
    ],
    ids=["projection", "flow onto a set", "mean on a set", "flow"],
)
def test_projections_constraints_and_flows_act_on_their_clocks_in_both_directions(
    march, sweep, operators, options, relative_difference
):
    received, expected = (solve(operators, *GRIDS[:2], **options) for solve in (march, sweep))
    assert relative_difference(received, expected) < 1e-13
    assert relative_difference(received[1], follow(operators, GRIDS[1], **options)) < 1e-13


def test_the_flow_of_an_operator_is_followed_in_place_of_its_field():
    terms, solver = build_solver((Growth(),), scheme="lie", substep="exact")
    u1 = start(terms, solver, jnp.asarray(U0), 0.2, 1.2, dt0=1.0).ys[0]
    np.testing.assert_allclose(u1, U0 * np.exp(np.sin(1.2) - np.sin(0.2)), rtol=1e-15)


@pytest.fixture(scope="module")
def exact():
    with jax.enable_x64(True):
        return solve_unsplit([as_operator(f) for f in (stretch, bend)], jnp.asarray(U0), 1.0)


@pytest.mark.parametrize("scheme", ["lie", "strang", "swss"])
def test_a_tighter_tolerance_takes_more_steps_and_leaves_a_smaller_error(scheme, exact, fast_compilation):
    def solve(tolerance):
        terms, solver = build_solver((stretch, bend), scheme=scheme)
        controller = diffrax.PIDController(rtol=tolerance, atol=tolerance)
        return start(terms, solver, jnp.asarray(U0), 0.0, 1.0, dt0=0.3, stepsize_controller=controller)

    compiled = jax.jit(solve, compiler_options=fast_compilation)
    loose, tight = compiled(1e-3), compiled(1e-5)
    assert tight.stats["num_accepted_steps"] > 5 * loose.stats["num_accepted_steps"]
    errors = [float(jnp.max(jnp.abs(solution.ys[0] - exact))) for solution in (loose, tight)]
    assert errors[1] < errors[0] / 5


def embedded_error(operators, h, **options):
    terms, solver = build_solver(operators, **options)
    state = solver.init(terms, 0.3, 0.3 + h, jnp.asarray(U0), None)
    return solver.step(terms, 0.3, 0.3 + h, jnp.asarray(U0), None, state, False)[1]


@pytest.mark.parametrize("operators", [(stretch, bend), (lambda t, u: stretch(t, u) + bend(t, u),)], ids=["two", "one"])
@SAMPLINGS
@ALL
def test_the_embedded_error_falls_with_the_square_of_the_step(operators, scheme, sampling):
    errors = [embedded_error(operators, h, scheme=scheme, sampling=sampling) for h in (0.01, 0.005)]
    coarse, fine = (float(jnp.max(jnp.abs(error))) for error in errors)
    assert fine > 0
    assert 3.7 < coarse / fine < 4.3


@pytest.mark.parametrize("scheme", ["lie", "strang", "strang_staggered", "parallel", "swss"])
def test_one_operator_has_the_defect_of_its_substep_as_error(scheme):
    error = embedded_error((stretch,), 0.1, scheme=scheme, substep="euler")
    u1 = U0 + 0.1 * stretch(0.3, U0)
    np.testing.assert_allclose(error, np.abs(0.05 * (stretch(0.4, u1) - stretch(0.3, U0))), rtol=1e-12)


def test_the_commutator_is_seen_where_the_free_estimate_is_blind_to_it():
    # With A constant the outer increments of A/2 F A/2 are equal, whatever F does.
    def push(t, u):
        return jnp.ones_like(u)

    def pull(t, u):
        return -5 * jnp.sin(3 * u)

    error = embedded_error((push, pull), 0.1, scheme="strang", substep="rk4")
    assert float(jnp.max(error)) > 0.01


@pytest.mark.parametrize("scheme", ["strang", "strang_staggered", "swss"])
def test_exact_flows_that_do_not_commute_have_a_splitting_error(scheme):
    class Push:
        def vector_field(self, t, u):
            return jnp.ones_like(u)

        def flow(self, u, t0, t1):
            return u + (t1 - t0)

    errors = [
        float(jnp.max(jnp.abs(embedded_error((Push(), Growth()), h, scheme=scheme, substep="exact"))))
        for h in (0.02, 0.01)
    ]
    assert 3.6 < errors[0] / errors[1] < 4.4


def test_one_exact_flow_has_no_error():
    assert float(jnp.max(jnp.abs(embedded_error((Growth(),), 0.1, scheme="lie", substep="exact")))) == 0


@pytest.mark.parametrize(
    ("operators", "scheme", "substep", "order"),
    [
        ((stretch, bend), "strang", "midpoint", 2),
        ((stretch, bend), "strang", "euler", 1),
        ((stretch, bend), "yoshida4", "rk4", 4),
        ((stretch, bend), "parallel", "rk4", 4),
        ((Growth(), bend), "strang", ("exact", "rk4"), 2),
        ((Growth(),), "lie", "exact", None),
    ],
)
def test_the_order_that_diffrax_is_told_is_the_smallest(operators, scheme, substep, order):
    terms, solver = build_solver(operators, scheme=scheme, substep=substep)
    assert solver.order(terms) == order
    assert solver.error_order(terms) == 2


def test_a_step_ends_exactly_at_a_jump_and_the_order_is_kept(fast_compilation):
    jump, turn, shear = 1 / 3, np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.5, 1.0], [0.0, -0.3]])
    exact = expm((1 - jump) * (shear - 2 * turn)) @ expm(jump * (shear + turn)) @ U0

    def solve(dt):
        terms, solver = build_solver((lambda t, u: jnp.where(t < jump, 1.0, -2.0) * (turn @ u), lambda t, u: shear @ u))
        controller = diffrax.PIDController(rtol=1e6, atol=1e6, dtmax=dt)
        controller = diffrax.ClipStepSizeController(controller, jump_ts=jnp.array([jump]))
        save = {"saveat": diffrax.SaveAt(steps=True), "max_steps": 140}
        return start(terms, solver, jnp.asarray(U0), 0.0, 1.0, dt0=dt, stepsize_controller=controller, **save)

    compiled, errors = jax.jit(solve, compiler_options=fast_compilation), []
    for steps in (16, 32, 64, 128):
        solution = compiled(1 / steps)
        ends = solution.ts[jnp.isfinite(solution.ts)]
        assert float(jnp.min(jnp.abs(ends - jump))) < 1e-15
        errors.append(float(jnp.max(jnp.abs(solution.ys[len(ends) - 1] - exact))))
    assert abs(math.log2(errors[-2] / errors[-1]) - 2) < 0.1


def test_merged_ends_begin_anew_at_a_jump(relative_difference):
    def take_steps(scheme, made_jump):
        terms, solver = build_solver((stretch, bend), scheme=scheme)
        u, state = jnp.asarray(U0), solver.init(terms, 0.0, 0.2, jnp.asarray(U0), None)
        for t0, t1 in ((0.0, 0.2), (0.2, 0.5)):
            u, _, _, state, _ = solver.step(terms, t0, t1, u, None, state, made_jump)
        return u

    assert relative_difference(take_steps("strang_staggered", True), take_steps("strang", False)) < 1e-15
    assert relative_difference(take_steps("strang_staggered", False), take_steps("strang", False)) > 1e-6
