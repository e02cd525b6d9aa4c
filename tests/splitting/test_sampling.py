"""What caps the order beside the scheme: frozen midpoints, controls with knots, kinks (MATH.md section 5)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.dynamics import Normalization, PostNormalized, PreNormalized
from ctt.dynamics.placement import TangentNormalized
from ctt.splitting import (
    SCHEMES,
    SUBSTEPS,
    Scheme,
    build_scheme,
    build_substeps,
    measure_convergence,
    single_word,
    split_step,
)
from ctt.splitting.integrate import as_operator
from ctt.splitting.order import solve_unsplit

pytestmark = pytest.mark.usefixtures("float64")

GRIDS = (16, 32, 64, 128)
U0 = np.array([1.0, 0.5])
W1 = 1 / (2 - 2 ** (1 / 3))
W0 = 1 - 2 * W1
MERGED_TRIPLE = Scheme(
    "yoshida4 with merged neighbours",
    2,
    single_word((0, W1 / 2), (1, W1), (0, (W1 + W0) / 2), (1, W0), (0, (W0 + W1) / 2), (1, W1), (0, W1 / 2)),
)


def stretch(t, u):
    return jnp.stack([u[1] * (1 + t), jnp.sin(3 * t) * u[0]])


def bend(t, u):
    return jnp.stack([-jnp.sin(u[0]) * jnp.cos(2 * t), u[0] * u[1] - t])


def controlled(control):
    def swing(t, u):
        return control(t) * jnp.stack([u[1], -jnp.sin(u[0])])

    def pull(t, u):
        return jnp.stack([-u[0] * u[1], control(t) * u[0]])

    return swing, pull


def constant_between(*values):
    """Return the control with these values on equal intervals of [0, 1]."""
    number = len(values)

    def control(t):
        # A knot that is computed as a sum of fractions of steps belongs to the interval that begins there.
        return jnp.asarray(values)[jnp.clip(jnp.floor(t * number + 1e-9).astype(int), 0, number - 1)]

    return control


def kinked(t):
    """A control that is linear between knots at the quarters."""
    return 0.5 + 6 * abs(t - 0.25) - 12 * abs(t - 0.5) + 10 * abs(t - 0.75)


ONE_THIRD = controlled(constant_between(1.0, -0.5, 2.0)), (1 / 3, 2 / 3)
QUARTERS = controlled(constant_between(1.0, -0.5, 2.0, 0.3)), (0.25, 0.5, 0.75)
LINEAR = controlled(kinked), (0.25, 0.5, 0.75)
SMOOTH = (stretch, bend), ()


@pytest.fixture(scope="module")
def measure():
    """Return a function that measures the order at the finest pair of four grids."""

    @functools.cache
    def solve(problem):
        with jax.enable_x64(True):
            return solve_unsplit([as_operator(f) for f in problem[0]], jnp.asarray(U0), 1.0, breakpoints=problem[1])

    def run(problem, scheme, substep, sampling):
        return measure_convergence(
            problem[0],
            jnp.asarray(U0),
            scheme=scheme,
            substep=substep,
            sampling=sampling,
            steps=GRIDS,
            reference=solve(problem),
        ).pairwise[-1]

    return run


@pytest.mark.parametrize(("sampling", "order"), [("stage", 4), ("midpoint", 2)])
def test_frozen_midpoints_cap_the_order_of_parallel_at_two(measure, sampling, order):
    assert abs(measure(SMOOTH, "parallel", "rk4", sampling) - order) < 0.1


def test_frozen_midpoints_keep_the_fourth_order_of_a_triple_of_strang_steps(measure):
    assert abs(measure(SMOOTH, "yoshida4", "rk4", "midpoint") - 4) < 0.1


@pytest.mark.parametrize(("sampling", "order"), [("stage", 4), ("midpoint", 2)])
def test_frozen_midpoints_cap_the_triple_at_two_where_neighbouring_letters_are_merged(measure, sampling, order):
    assert MERGED_TRIPLE.order == 4
    assert abs(measure(SMOOTH, MERGED_TRIPLE, "rk4", sampling) - order) < 0.1


@pytest.mark.parametrize("scheme", ["strang", "strang_staggered"])
def test_frozen_midpoints_keep_second_order(measure, scheme):
    assert abs(measure(SMOOTH, scheme, "midpoint", "midpoint") - 2) < 0.1


@pytest.mark.parametrize("sampling", ["stage", "midpoint"])
def test_controls_that_jump_within_steps_are_first_order(measure, sampling):
    assert abs(measure(ONE_THIRD, "strang", "midpoint", sampling) - 1) < 0.1


@pytest.mark.parametrize("sampling", ["stage", "midpoint"])
def test_controls_that_jump_between_steps_keep_second_order(measure, sampling):
    assert abs(measure(QUARTERS, "strang", "midpoint", sampling) - 2) < 0.1


@pytest.mark.parametrize(("sampling", "order"), [("stage", 1), ("midpoint", 2)])
def test_a_stage_at_the_end_of_a_letter_sees_the_jump_that_a_frozen_midpoint_does_not(measure, sampling, order):
    assert abs(measure(QUARTERS, "strang", "rk4", sampling) - order) < 0.1


def test_controls_that_jump_between_steps_jump_within_a_merged_letter(measure):
    assert abs(measure(QUARTERS, "strang_staggered", "midpoint", "midpoint") - 1) < 0.1


def test_piecewise_linear_controls_cap_the_triple_jump_at_two(measure):
    assert abs(measure(LINEAR, "yoshida4", "rk4", "midpoint") - 2) < 0.1


def test_relu_caps_the_triple_jump_near_two():
    # Four tokens, some of which cross the kink; with tanh in place of ReLU the slope is 4.0.
    generator = np.random.default_rng(0)
    weights, mixing = generator.standard_normal((3, 3, 3)), generator.standard_normal((4, 4))
    slope = measure_convergence(
        (lambda t, u: 2 * jnp.tanh(mixing / 2 @ u @ weights[0]), lambda t, u: jax.nn.relu(u @ weights[1]) @ weights[2]),
        jnp.asarray(generator.standard_normal((4, 3))),
        scheme="yoshida4",
        substep="rk4",
        sampling="midpoint",
        steps=(16, 32, 64, 128, 256),
    ).slope
    assert 1.5 < slope < 2.7


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("substep", ["euler", "midpoint", "heun", "rk4"])
@pytest.mark.parametrize("name", SCHEMES)
def test_beside_an_operator_that_is_zero_the_other_flows_by_its_fractions(name, substep, zero, relative_difference):
    fields, t0, dt = [as_operator(stretch), as_operator(stretch)], 0.3, 0.4
    fields[zero] = as_operator(lambda t, u: jnp.zeros_like(u))
    scheme, substeps = build_scheme(name, 2), build_substeps(substep, 2)
    received = split_step(scheme, substeps, operators=fields, u=jnp.asarray(U0), t=t0, dt=dt)
    expected = 0.0
    for weight, word in scheme.words:
        u, t = jnp.asarray(U0), t0
        for letter in word.letters:
            if 1 - zero in letter.operators:
                u = SUBSTEPS[substep].advance(stretch, t, u, letter.fraction * dt)
                t += letter.fraction * dt
        expected = expected + weight * u
    assert relative_difference(received, expected) < 1e-14


class Compiled:
    """An operator whose field is compiled once for all schemes."""

    def __init__(self, operator):
        self.vector_field = jax.jit(operator.vector_field)
        if hasattr(operator, "retract"):
            self.retract = jax.jit(operator.retract)


@pytest.fixture(scope="module", params=[PreNormalized, PostNormalized, TangentNormalized])
def placed(request):
    with jax.enable_x64(True):
        normalization = Normalization(3, affine="none", eps=0.0, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    return [Compiled(request.param(as_operator(f), normalization)) for f in (stretch, bend)]


@pytest.mark.parametrize("name", SCHEMES)
def test_a_short_step_moves_a_state_on_the_set_by_no_more_than_its_length(name, placed):
    scheme, substeps = build_scheme(name, 2), build_substeps("midpoint", 2)
    u = jnp.sqrt(jnp.array([[1.5, 0.0, 1.5], [0.5, 0.5, 2.0]])) * jnp.array([1.0, 1.0, -1.0])
    for dt in (1e-2, 1e-4, 1e-6):
        moved = split_step(scheme, substeps, operators=placed, u=u, t=0.2, dt=dt) - u
        assert 0.1 * dt < float(jnp.max(jnp.abs(moved))) < 10 * dt
