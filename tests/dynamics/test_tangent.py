"""Tangent spaces of the constraint sets, ways back to the sets, and operators that stay on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.dynamics import Constrained, Normalization, project_to_s1
from ctt.dynamics.normalization import average, project_to_sphere, project_to_tangent, retract
from ctt.dynamics.operator import is_bolted_on, is_reversible
from ctt.dynamics.placement import TangentNormalized
from ctt.splitting import integrate

WIDTH = 6
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.25, 3.0, 1.5])
PROJECTIONS = {"s1": project_to_s1, "sphere": project_to_sphere}

pytestmark = pytest.mark.usefixtures("float64")
on_both_sets = pytest.mark.parametrize("constraint", PROJECTIONS)
on_any_mesh = pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["uniform", "weighted"])


def draw(seed=0, shape=(4, WIDTH)):
    return jnp.asarray(2 + 3 * np.random.default_rng(seed).standard_normal(shape))


def place_on_set(constraint, weights=None, seed=0):
    return PROJECTIONS[constraint](draw(seed), 0.0, weights)


@on_any_mesh
@on_both_sets
def test_the_tangent_projection_is_the_derivative_of_the_projection(
    relative_difference, tolerances, constraint, weights
):
    u, v = place_on_set(constraint, weights), draw(1)
    _, expected = jax.jvp(lambda u: PROJECTIONS[constraint](u, 0.0, weights), (u,), (v,))
    received = project_to_tangent(u, v, 0.0, constraint=constraint, weights=weights)
    assert relative_difference(received, expected) < tolerances["float64"]


@on_any_mesh
@on_both_sets
def test_the_tangent_projection_is_idempotent_off_the_set_too(relative_difference, tolerances, constraint, weights):
    once = project_to_tangent(draw(), draw(1), 1e-6, constraint=constraint, weights=weights)
    twice = project_to_tangent(draw(), once, 1e-6, constraint=constraint, weights=weights)
    assert relative_difference(twice, once) < tolerances["float64"]


@on_any_mesh
@on_both_sets
def test_what_the_tangent_projection_takes_away_is_normal_to_the_set(constraint, weights):
    # The normal directions are the state and, on S1, the constants: in the inner product of the mesh.
    u, v = place_on_set(constraint, weights), draw(1)
    tangent = project_to_tangent(u, v, 0.0, constraint=constraint, weights=weights)
    np.testing.assert_allclose(average(u * tangent, weights), 0, atol=1e-13)
    if constraint == "s1":
        np.testing.assert_allclose(average(tangent, weights), 0, atol=1e-13)
    # The remainder is orthogonal to every tangent vector, so the projection is the nearest tangent vector.
    other = project_to_tangent(u, draw(2), 0.0, constraint=constraint, weights=weights)
    np.testing.assert_allclose(average((v - tangent) * other, weights), 0, atol=1e-12)


def test_only_the_mean_and_the_state_itself_are_taken_away(relative_difference, tolerances):
    u, v = place_on_set("s1"), draw(1)
    expected = v - jnp.mean(v, -1, keepdims=True) - u * jnp.mean(u * v, -1, keepdims=True)
    assert relative_difference(project_to_tangent(u, v, 0.0), expected) < tolerances["float64"]


@on_any_mesh
@on_both_sets
def test_the_retraction_is_the_projection_where_the_state_has_a_size(
    relative_difference, tolerances, constraint, weights
):
    received = retract(draw(), 1e-3, constraint=constraint, weights=weights)
    assert relative_difference(received, place_on_set(constraint, weights)) < tolerances["float64"]


@on_both_sets
def test_with_eps_the_retraction_is_idempotent_and_the_projection_is_not(relative_difference, tolerances, constraint):
    eps, project = 1e-2, PROJECTIONS[constraint]
    once = retract(draw(), eps, constraint=constraint)
    assert relative_difference(retract(once, eps, constraint=constraint), once) < tolerances["float64"]
    projected = project(draw(), eps)
    # A token of size one shrinks by eps / 2.
    assert relative_difference(project(projected, eps), projected) > eps / 4


def test_with_quadrature_weights_it_is_the_weighted_mean_and_variance_that_are_fixed(tolerances):
    u = np.asarray(project_to_s1(draw(), 0.0, WEIGHTS))
    share = WEIGHTS / WEIGHTS.sum()
    np.testing.assert_allclose(u @ share, 0, atol=1e-14)
    np.testing.assert_allclose(u**2 @ share, 1, rtol=tolerances["float64"])


@pytest.mark.parametrize("height", [1.0, 0.3])
@on_both_sets
def test_uniform_quadrature_weights_change_nothing(relative_difference, tolerances, constraint, height):
    weights = np.full(WIDTH, height)
    project = PROJECTIONS[constraint]
    pairs = [
        (project(draw(), 1e-3, weights), project(draw(), 1e-3)),
        (retract(draw(), 1e-3, constraint=constraint, weights=weights), retract(draw(), 1e-3, constraint=constraint)),
        (
            project_to_tangent(draw(), draw(1), 0.0, constraint=constraint, weights=weights),
            project_to_tangent(draw(), draw(1), 0.0, constraint=constraint),
        ),
    ]
    assert all(relative_difference(*pair) < tolerances["float64"] for pair in pairs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@on_both_sets
def test_the_type_of_the_state_is_kept(constraint, dtype):
    u, v = draw().astype(dtype), draw(1).astype(dtype)
    assert retract(u, 1e-6, constraint=constraint).dtype == dtype
    assert project_to_tangent(u, v, 1e-6, constraint=constraint).dtype == dtype
    norm = build_norm("scalar", constraint)
    assert norm.leave_frame(u).dtype == norm.enter_frame(u).dtype == norm.tangent(u, v).dtype == dtype


def build_norm(affine="scalar", constraint="s1", *, shift=0.4, scale=1.7):
    norm = Normalization(
        WIDTH, affine=affine, eps=1e-6, constraint=constraint, param_dtype=jnp.float64, rngs=nnx.Rngs(0)
    )
    if norm.log_scale is not None:
        norm.log_scale = nnx.Param(jnp.log(scale))
    if norm.shift is not None:
        norm.shift = nnx.Param(jnp.asarray(shift))
    return norm


class Twist:
    """A field with parts along the mean and along the state."""

    def vector_field(self, t, u):
        return jnp.sin(2 * jnp.roll(u, 1, -1)) + 0.3 * u**2 + jnp.cos(t)


def place(affine="scalar", constraint="s1", operator=None):
    return TangentNormalized(operator or Twist(), build_norm(affine, constraint))


def test_the_field_is_that_of_the_state_in_its_moving_frame(relative_difference, tolerances):
    v = place_on_set("s1")
    expected = project_to_tangent(v, Twist().vector_field(0.3, 0.4 + 1.7 * v) / 1.7, 1e-6)
    assert relative_difference(place().vector_field(0.3, v), expected) < tolerances["float64"]


def test_without_an_affine_map_the_frame_does_not_move(relative_difference, tolerances):
    u = place_on_set("s1")
    expected = project_to_tangent(u, Twist().vector_field(0.3, u), 1e-6)
    assert relative_difference(place("none").vector_field(0.3, u), expected) < tolerances["float64"]


@on_both_sets
@pytest.mark.parametrize("affine", ["none", "scalar"])
def test_the_field_is_tangent_to_the_set_in_its_frame(affine, constraint):
    v = place_on_set(constraint)
    field = place(affine, constraint).vector_field(0.3, v)
    np.testing.assert_allclose(jnp.mean(v * field, -1), 0, atol=1e-13)
    if constraint == "s1":
        np.testing.assert_allclose(jnp.mean(field, -1), 0, atol=1e-13)


@on_both_sets
@pytest.mark.parametrize("substep", ["euler", "midpoint", "rk4"])
@pytest.mark.parametrize("affine", ["none", "scalar"])
def test_the_state_stays_on_the_set_of_its_frame(fast_compilation, affine, substep, constraint):
    def step(v):
        return integrate([place(affine, constraint)], v, scheme="lie", substep=substep, steps=1, horizon=0.3)

    advance = jax.jit(step, compiler_options=fast_compilation)
    v = place_on_set(constraint)
    for _ in range(5):
        v = advance(v)
        np.testing.assert_allclose(jnp.mean(jnp.square(v), -1), 1, rtol=1e-12)
        if constraint == "s1":
            np.testing.assert_allclose(jnp.mean(v, -1), 0, atol=1e-12)


@pytest.mark.parametrize(("substep", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_without_the_retraction_the_state_drifts_by_no_more_than_the_order(fast_compilation, substep, order):
    def drift(steps):
        field = place().vector_field
        run = jax.jit(
            lambda v: integrate([field], v, scheme="lie", substep=substep, steps=steps),
            compiler_options=fast_compilation,
        )
        return float(jnp.max(jnp.abs(jnp.mean(jnp.square(run(place_on_set("s1"))), -1) - 1)))

    coarse, fine = drift(32), drift(64)
    assert np.log2(coarse / fine) > order - 0.2


def test_a_tangent_placement_is_a_constraint_that_costs_no_order():
    placed = place()
    assert isinstance(placed, Constrained)
    assert placed.is_tangent
    assert not is_bolted_on(placed)


def test_a_tangent_placement_has_no_flow_of_its_own():
    class Flowing(Twist):
        def flow(self, u, t0, t1):
            return u

    assert getattr(place(operator=Flowing()), "flow", None) is None


def test_a_tangent_placement_flows_backwards_where_its_operator_does():
    class Irreversible(Twist):
        is_reversible = False

    assert is_reversible(place())
    assert not is_reversible(place(operator=Irreversible()))


def test_a_mask_acts_on_the_field_before_it_is_made_tangent(relative_difference, tolerances):
    v, mask = place_on_set("s1"), jnp.asarray(np.random.default_rng(3).integers(0, 3, (4, WIDTH)), float)
    masked = place().masked(mask)
    expected = project_to_tangent(v, mask * Twist().vector_field(0.0, 0.4 + 1.7 * v) / 1.7, 1e-6)
    assert isinstance(masked, TangentNormalized)
    assert relative_difference(masked.vector_field(0.0, v), expected) < tolerances["float64"]


def move_set(t):
    """The mean and the deviation of a set that moves smoothly."""
    return 0.5 * jnp.sin(2 * t), jnp.exp(0.6 * jnp.cos(3 * t))


class MovingFrame:
    """The field of the moving frame; the set of time t is that of `move_set`."""

    def _at(self, t):
        shift, scale = move_set(t)
        return TangentNormalized(Twist(), build_norm(shift=shift, scale=scale))

    def vector_field(self, t, v):
        return self._at(t).vector_field(t, v)

    def retract(self, t, v):
        return self._at(t).retract(t, v)


def integrate_in_frame(v0, steps, substep="midpoint"):
    shift, scale = move_set(1.0)
    return shift + scale * integrate([MovingFrame()], v0, scheme="lie", substep=substep, steps=steps)


def integrate_with_projections(v0, steps, *, with_motion):
    """The midpoint rule for u itself, which is projected onto the moving set at the end of each step."""

    def field(t, u):
        (shift, scale), (d_shift, d_scale) = jax.jvp(move_set, (t,), (1.0,))
        motion = d_shift + d_scale / scale * (u - shift) if with_motion else 0.0
        return project_to_tangent(u, Twist().vector_field(t, u), 0.0) + motion

    def step(n, u):
        t, h = n / steps, 1.0 / steps
        u = u + h * field(t + h / 2, u + h / 2 * field(t, u))
        shift, scale = move_set(t + h)
        return shift + scale * project_to_s1(u, 0.0)

    shift, scale = move_set(0.0)
    return jax.lax.fori_loop(0, steps, step, shift + scale * v0)


SOLVERS = {
    "in the moving frame": (integrate_in_frame, 2),
    "projected at step ends": (lambda v, n: integrate_with_projections(v, n, with_motion=False), 1),
    "projected at step ends, with the motion of the set": (
        lambda v, n: integrate_with_projections(v, n, with_motion=True),
        2,
    ),
}


@pytest.fixture(scope="module")
def exact():
    with jax.enable_x64(True):
        return np.asarray(integrate_in_frame(place_on_set("s1")[:1], 256, "rk4"))


@pytest.mark.parametrize(("solve", "order"), SOLVERS.values(), ids=SOLVERS)
def test_on_a_moving_set_the_frame_keeps_the_order_that_projections_alone_lose(fast_compilation, exact, solve, order):
    v0 = place_on_set("s1")[:1]
    results = [jax.jit(solve, static_argnums=1, compiler_options=fast_compilation)(v0, n) for n in (128, 256)]
    errors = [float(jnp.linalg.norm(u - exact)) for u in results]
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.1
