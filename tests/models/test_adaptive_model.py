"""A network on a grid of a solver's own: adaptive steps, dense output, and the splitting error along its depth."""

import itertools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError
from ctt.controls.timeline import operators_in_time
from ctt.models import Evolution, build_model
from ctt.models.operators import build_operators
from ctt.models.solution import measure_splitting, solve_evolution
from ctt.splitting import build_substeps, integrate
from ctt.splitting.meter import measure_step

pytestmark = pytest.mark.usefixtures("float64")

KNOTS, HORIZON = 2, 1.0
U0 = np.random.default_rng(0).standard_normal((3, 4, 8))


class Linear(nnx.Module):
    """The field ``u A``, with a matrix of each coefficient's own."""

    def __init__(self, rngs):
        self.matrix = nnx.Param(jax.random.normal(rngs.params(), (8, 8)))

    def vector_field(self, t, u):
        return u @ self.matrix[...]


class Bend(Linear):
    """The field ``sin(u A)``."""

    def vector_field(self, t, u):
        return jnp.sin(u @ self.matrix[...])


@pytest.fixture
def build(tiny_config):
    """Return a maker of an `Evolution` of two hand-made operators."""

    def make(overrides=None, operators=(Linear, Bend)):
        fields = {"model.dtype": "float64", "splitting.steps": KNOTS, "splitting.horizon": HORIZON}
        fields |= {"splitting.scheme": "strang", "splitting.substep": "midpoint"} | (overrides or {})
        return Evolution(
            tiny_config(fields),
            lambda rngs: {f"f{i}": make(rngs) for i, make in enumerate(operators)},
            key=jax.random.key(0),
        )

    return make


@pytest.fixture
def solve(call_jitted):
    """Return a function that solves an `Evolution` adaptively, compiled."""

    def run(evolution, u0=U0, **options):
        return call_jitted(lambda e, u: solve_evolution(e, u, **options), evolution, u0)

    return run


@pytest.fixture
def refine(call_jitted):
    """Return a function from an `Evolution` to a fine solution of its equation."""

    def run(e, u):
        # A hundred steps a knot, so that none of them straddles a jump of the controls.
        operators, steps = operators_in_time(e.controls), 100 * KNOTS
        return integrate(operators, u, scheme="parallel", substep="rk4", steps=steps, horizon=HORIZON, sampling="step")

    return lambda evolution: call_jitted(run, evolution, U0)


@pytest.fixture
def solve_at(call_jitted):
    """Return a function to the final states and the numbers of steps of several tolerances, compiled once."""

    def run(make_solution, module, x, tolerances):
        def compute(module, x, tolerances):
            def solve_one(tolerance):
                solution = make_solution(module, x, rtol=tolerance, atol=tolerance)
                return solution.ys[-1], solution.stats["num_accepted_steps"]

            return jax.lax.map(solve_one, tolerances)

        return call_jitted(compute, module, x, jnp.asarray(tolerances))

    return run


@pytest.mark.parametrize("scheme", ["lie", "strang", "strang_staggered", "swss", "parallel"])
def test_the_solution_tends_to_the_equation_as_the_tolerance_falls(
    build, solve_at, refine, relative_difference, scheme
):
    evolution = build({"splitting.scheme": scheme})
    tolerances = (1e-2, 1e-3, 1e-4)
    states, steps = solve_at(solve_evolution, evolution, U0, tolerances)
    exact = refine(evolution)
    errors = [relative_difference(state, exact) for state in states]
    assert all(fine < coarse / 2 for coarse, fine in itertools.pairwise(errors))
    assert errors[-1] < 50 * tolerances[-1]
    assert steps[0] < steps[1] < steps[2]


@pytest.fixture
def solve_all_steps(call_jitted):
    """Return a function from an `Evolution` to the times at which the steps of its solution end."""

    def run(evolution, **options):
        solution = call_jitted(lambda e, u: solve_evolution(e, u, dense=True, **options), evolution, U0)
        times = np.asarray(solution.interpolation.ts)
        return solution, times[np.isfinite(times)]

    return run


@pytest.mark.parametrize("knots", [2, 4])
def test_steps_land_on_the_knots_of_the_controls(build, solve_all_steps, knots):
    evolution = build({"splitting.steps": 4, "controls.knots": knots})
    _, times = solve_all_steps(evolution, rtol=1e-2, atol=1e-2, max_steps=256)
    for knot in np.arange(knots + 1) * HORIZON / knots:
        assert np.abs(times - knot).min() < 1e-6


def test_with_one_knot_there_is_no_time_that_steps_must_land_on(build, solve_all_steps):
    _, times = solve_all_steps(build({"controls.knots": 1}), rtol=1e-1, atol=1e-1, max_steps=64)
    assert times[-1] == HORIZON
    assert np.abs(times - HORIZON / 2).min() > 1e-3


def test_dense_output_goes_through_the_ends_of_the_steps(build, solve_all_steps, refine, relative_difference):
    evolution = build()
    solution, _ = solve_all_steps(evolution, rtol=1e-4, atol=1e-4, max_steps=1024)
    np.testing.assert_array_equal(solution.evaluate(0.0), U0)
    assert relative_difference(solution.evaluate(HORIZON), solution.ys[-1]) < 1e-14
    assert relative_difference(solution.evaluate(HORIZON), refine(evolution)) < 1e-3
    # Between them, the output follows the equation.
    half = integrate(
        operators_in_time(evolution.controls),
        jnp.asarray(U0),
        scheme="parallel",
        substep="rk4",
        steps=50,
        horizon=HORIZON / 2,
        sampling="step",
    )
    assert relative_difference(solution.evaluate(HORIZON / 2), half) < 1e-3


def test_each_example_of_a_vmap_has_steps_of_its_own(build, fast_compilation, relative_difference):
    graphdef, state = nnx.split(build())
    # The first example is small, where the sine is linear and the error in absolute terms nothing.
    u0 = jnp.asarray(U0) * jnp.array([1e-4, 1.0, 8.0])[:, None, None]

    @jax.jit
    def run(state, u0):
        def solve_one(u):
            solution = solve_evolution(nnx.merge(graphdef, state), u, rtol=0.0, atol=1e-4)
            return solution.ys[-1], solution.stats["num_accepted_steps"]

        return jax.vmap(solve_one)(u0)

    together, steps = run(state, u0)
    assert steps[0] < steps[1] < steps[2]
    alone, steps_alone = run(state, u0[::-1])
    np.testing.assert_array_equal(steps_alone[::-1], steps)
    assert relative_difference(alone[::-1], together) < 1e-13


def test_steps_that_do_not_suffice_are_said_by_the_result(build, solve):
    assert solve(build(), rtol=1e-9, atol=1e-9, max_steps=3).result != diffrax.RESULTS.successful
    assert solve(build()).result == diffrax.RESULTS.successful


@pytest.mark.parametrize(("substep", "error"), [("euler", 2e-2), ("midpoint", 1e-3)])
def test_a_single_operator_has_the_error_of_its_substep(build, solve_at, refine, relative_difference, substep, error):
    evolution = build({"splitting.substep": substep}, operators=(Bend,))
    states, steps = solve_at(solve_evolution, evolution, U0, (1e-2, 1e-3))
    errors = [relative_difference(state, refine(evolution)) for state in states]
    assert errors[1] < errors[0] / 2
    assert errors[1] < error
    assert steps[0] < steps[1]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (solve_evolution, r"Adaptive steps cannot be had from the literal scheme, .*Choose --splitting\.scheme lie\."),
        (measure_splitting, r"A splitting error cannot be had from the literal scheme, .*--splitting\.scheme lie\."),
    ],
)
def test_the_literal_scheme_is_refused(tiny_config, method, message):
    fields = {"splitting.scheme": "literal", "normalization.placement": "post"}
    config = tiny_config(fields | {"model.activation": "relu", "model.feedforward_width": 8})
    evolution = nnx.eval_shape(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    with pytest.raises(InputError, match=message):
        method(evolution, jnp.asarray(U0))


@pytest.mark.parametrize("placement", ["pre", "post", "tangent"])
def test_a_model_is_solved_from_its_images(tiny_config, draw_weights, solve_at, relative_difference, placement):
    fields = {"normalization.placement": placement, "normalization.affine": "none", "splitting.scheme": "strang"}
    fields |= {"splitting.substep": "midpoint", "splitting.horizon": HORIZON, "model.dtype": "float64"}
    model = draw_weights(lambda: build_model(tiny_config(fields)))
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 1)).astype(np.uint8)
    (loose, tight), _ = solve_at(lambda m, x, **options: m.solve(x, **options), model, images, (1e-2, 1e-3))
    assert 0 < relative_difference(loose, tight) < 0.1
    if placement != "pre":
        np.testing.assert_allclose(jnp.mean(tight, -1), 0, atol=1e-12)
    assert model.classify(tight).shape == (2, 3)


@pytest.mark.parametrize("scheme", ["lie", "strang", "strang_staggered", "parallel"])
def test_the_splitting_error_of_every_step_is_measured(build, call_jitted, scheme):
    evolution = build({"splitting.scheme": scheme, "splitting.steps": 3})
    measures = call_jitted(measure_splitting, evolution, U0)
    names = {"free_estimate", "lie_strang", "commutator", "increment", "lipschitz_f0", "lipschitz_f1"}
    assert set(measures) == names
    assert {value.shape for value in measures.values()} == {(3,)}
    assert all(bool(jnp.all(value > 0)) for value in measures.values())


def test_a_step_is_measured_from_its_own_state_with_its_own_controls(build, call_jitted, relative_difference):
    evolution = build({"splitting.steps": 3})
    measures, states = call_jitted(lambda e, u: (measure_splitting(e, u), e.trajectory(u)), evolution, U0)
    frozen = evolution.controls.freeze(jax.tree.map(lambda x: x[1], evolution.controls.coefficients))
    methods = build_substeps("midpoint", 2)
    expected = measure_step(methods, operators=frozen, names=("f0", "f1"), u=states[1], t=1 / 3, dt=1 / 3)
    assert all(relative_difference(measures[name][1], value) < 1e-10 for name, value in expected.items())
