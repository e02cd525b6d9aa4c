"""Layer normalisation is the projection onto S1 = {u : mean_y u = 0, var_y u = 1}."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.dynamics import Normalization, lift_precision, project_to_s1
from ctt.dynamics.normalization import project_to_sphere

WIDTH = 6


def draw(shape=(4, WIDTH), seed=0, dtype=np.float64):
    return jnp.asarray(2 + 3 * np.random.default_rng(seed).standard_normal(shape), dtype)


def build(affine, dtype=jnp.float64, eps=1e-6):
    return Normalization(WIDTH, affine=affine, eps=eps, param_dtype=dtype, rngs=nnx.Rngs(0))


@pytest.mark.usefixtures("float64")
def test_a_projected_token_has_mean_zero():
    np.testing.assert_allclose(jnp.mean(project_to_s1(draw(), 0.0), -1), 0, atol=1e-15)


@pytest.mark.usefixtures("float64")
def test_a_projected_token_has_variance_one(tolerances):
    np.testing.assert_allclose(jnp.var(project_to_s1(draw(), 0.0), -1), 1, rtol=tolerances["float64"])


@pytest.mark.usefixtures("float64")
def test_the_projection_is_idempotent_without_eps(relative_difference, tolerances):
    once = project_to_s1(draw(), 0.0)
    assert relative_difference(project_to_s1(once, 0.0), once) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_the_projection_ignores_a_shift_and_a_positive_scale(relative_difference, tolerances):
    moved = project_to_s1(5 * draw() + 3, 0.0)
    assert relative_difference(moved, project_to_s1(draw(), 0.0)) < tolerances["float64"]


def sample_set(size, seed):
    """Points of S1(0, 1), uniformly distributed, and none of them drawn like the states above."""
    points = np.random.default_rng(1000 + seed).standard_normal((size, WIDTH))
    points -= points.mean(-1, keepdims=True)
    return points / points.std(-1, keepdims=True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("float64")
def test_no_point_of_the_set_is_nearer_than_the_projection(seed):
    u = draw((WIDTH,), seed)
    distances = np.linalg.norm(sample_set(20_000, seed) - u, axis=-1)
    assert np.linalg.norm(project_to_s1(u, 0.0) - u) <= distances.min()


@pytest.mark.usefixtures("float64")
def test_a_random_search_comes_near_the_projection():
    u = draw((WIDTH,))
    points = sample_set(20_000, 0)
    best = points[np.argmin(np.linalg.norm(points - u, axis=-1))]
    assert np.linalg.norm(best - project_to_s1(u, 0.0)) < 0.5


@pytest.mark.usefixtures("float64")
def test_eps_is_added_to_the_variance(relative_difference, tolerances):
    u = np.asarray(draw())
    expected = (u - u.mean(-1, keepdims=True)) / np.sqrt(u.var(-1, keepdims=True) + 0.7)
    assert relative_difference(project_to_s1(jnp.asarray(u), 0.7), expected) < tolerances["float64"]


def test_bfloat16_is_normalised_in_float32():
    u = draw(dtype=jnp.bfloat16)
    np.testing.assert_array_equal(
        project_to_s1(u, 1e-6), project_to_s1(u.astype(jnp.float32), 1e-6).astype(jnp.bfloat16)
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("affine", ["elementwise", "scalar", "none"])
@pytest.mark.usefixtures("float64")
def test_the_type_of_the_state_is_kept(affine, dtype):
    norm = build(affine, jnp.promote_types(dtype, jnp.float32))
    assert norm.project(0.0, draw(dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "lifted"),
    [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")],
)
@pytest.mark.usefixtures("float64")
def test_precision_is_lifted_to_at_least_float32(dtype, lifted):
    assert lift_precision(jnp.ones(2, dtype)).dtype == lifted


@pytest.mark.parametrize("offset", [1e3, 1e5, 1e6])
def test_the_variance_is_not_negative_far_from_zero(offset):
    u = jnp.asarray(offset + np.random.default_rng(0).standard_normal((8, WIDTH)), jnp.float32)
    assert bool(jnp.all(jnp.isfinite(project_to_s1(u, 0.0))))


def test_far_from_zero_the_variance_is_that_of_the_rounded_features():
    u = jnp.asarray(1e4 + np.random.default_rng(0).standard_normal((8, WIDTH)), jnp.float32)
    wide = np.asarray(u, np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    # The mean itself is rounded to a thousandth here.
    np.testing.assert_allclose(project_to_s1(u, 0.0), expected, atol=5e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("value", [0.0, 1.0, -300.0])
def test_a_constant_token_is_projected_to_zero_with_eps(value, dtype):
    np.testing.assert_array_equal(project_to_s1(jnp.full((2, 8), value, dtype), 1e-6), 0)


@pytest.mark.parametrize("eps", [1e-12, 1e-6])
def test_a_constant_token_has_a_finite_gradient_with_eps(eps):
    gradient = jax.grad(lambda u: jnp.sum(project_to_s1(u, eps)[..., 0]))(jnp.full((2, WIDTH), 3.0))
    assert bool(jnp.all(jnp.isfinite(gradient)))


@pytest.mark.usefixtures("float64")
def test_an_elementwise_affine_map_follows_the_projection(relative_difference, tolerances, draw_weights):
    norm = draw_weights(lambda: build("elementwise"))
    expected = project_to_s1(draw(), 1e-6) * norm.scale[...] + norm.bias[...]
    assert relative_difference(norm.project(0.0, draw()), expected) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_an_elementwise_affine_map_is_the_identity_at_first(relative_difference):
    assert relative_difference(build("elementwise").project(0.0, draw()), project_to_s1(draw(), 1e-6)) == 0


@pytest.mark.usefixtures("float64")
def test_with_an_elementwise_affine_map_normalisation_is_not_idempotent(relative_difference, draw_weights):
    norm = draw_weights(lambda: build("elementwise"))
    once = norm.project(0.0, draw())
    assert relative_difference(norm.project(0.0, once), once) > 0.01


def test_without_an_affine_map_there_are_no_weights():
    assert not jax.tree.leaves(nnx.state(build("none", jnp.float32)))


MEAN, DEVIATION = 0.7, 1.9


def build_scalar(mean=MEAN, deviation=DEVIATION, eps=0.0):
    """The projection onto S1(mean, deviation)."""
    norm = build("scalar", eps=eps)
    norm.shift = nnx.Param(jnp.asarray(mean))
    norm.log_scale = nnx.Param(jnp.asarray(np.log(deviation)))
    return norm


@pytest.mark.usefixtures("float64")
def test_a_scalar_affine_kind_projects_onto_its_own_mean_and_deviation(tolerances):
    u = build_scalar().project(0.0, draw())
    np.testing.assert_allclose(jnp.mean(u, -1), MEAN, rtol=tolerances["float64"])
    np.testing.assert_allclose(jnp.std(u, -1), DEVIATION, rtol=tolerances["float64"])


@pytest.mark.usefixtures("float64")
def test_a_scalar_affine_kind_is_a_projection_without_eps(relative_difference, tolerances):
    norm = build_scalar()
    once = norm.project(0.0, draw())
    assert relative_difference(norm.project(0.0, once), once) < tolerances["float64"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("float64")
def test_a_scalar_affine_kind_finds_the_nearest_point_of_its_set(seed):
    u = draw((WIDTH,), seed)
    distances = np.linalg.norm(MEAN + DEVIATION * sample_set(20_000, seed) - u, axis=-1)
    assert np.linalg.norm(build_scalar().project(0.0, u) - u) <= distances.min()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("float64")
def test_a_negative_deviation_would_give_the_farthest_point(seed):
    u = draw((WIDTH,), seed)
    distances = np.linalg.norm(MEAN + DEVIATION * sample_set(20_000, seed) - u, axis=-1)
    mirrored = MEAN - DEVIATION * project_to_s1(u, 0.0)
    assert np.linalg.norm(mirrored - u) >= distances.max()


@pytest.mark.parametrize("log_scale", [-20.0, -1.0, 0.0, 2.0])
@pytest.mark.usefixtures("float64")
def test_the_deviation_is_positive_whatever_its_parameter(log_scale):
    norm = build("scalar", eps=0.0)
    norm.log_scale = nnx.Param(jnp.asarray(log_scale))
    u = draw()
    centred = u - jnp.mean(u, -1, keepdims=True)
    # A positive scale keeps the order of the features; a negative one would reverse it.
    assert bool(jnp.all(jnp.sum(centred * norm.project(0.0, u), -1) > 0))


@pytest.mark.usefixtures("float64")
def test_a_scalar_affine_kind_is_the_plain_projection_at_first(relative_difference):
    assert relative_difference(build("scalar").project(0.0, draw()), project_to_s1(draw(), 1e-6)) == 0


@pytest.mark.usefixtures("float64")
def test_the_state_leaves_its_frame_for_the_moving_set(relative_difference, tolerances):
    norm, u = build_scalar(), draw()
    received = norm.leave_frame(project_to_s1(u, 0.0))
    assert relative_difference(received, norm.project(0.0, u)) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_a_rate_of_change_enters_the_frame_as_the_inverse_of_leaving_it(relative_difference, tolerances):
    norm, v, dv = build_scalar(), draw(seed=1), draw(seed=2)
    _, du = jax.jvp(norm.leave_frame, (v,), (dv,))
    assert relative_difference(norm.enter_frame(du), dv) < tolerances["float64"]


def build_sphere(affine, eps=1e-6):
    return Normalization(WIDTH, affine=affine, eps=eps, constraint="sphere", param_dtype=jnp.float64, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("eps", [0.0, 0.7])
@pytest.mark.usefixtures("float64")
def test_the_projection_onto_the_sphere_is_rms_normalisation(relative_difference, tolerances, eps):
    u = np.asarray(draw())
    expected = u / np.sqrt(np.mean(u**2, -1, keepdims=True) + eps)
    assert relative_difference(build_sphere("none", eps).project(0.0, jnp.asarray(u)), expected) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_the_projection_onto_the_sphere_is_idempotent_without_eps(relative_difference, tolerances):
    once = project_to_sphere(draw(), 0.0)
    assert relative_difference(project_to_sphere(once, 0.0), once) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_no_point_of_the_sphere_is_nearer_than_the_projection():
    u, points = draw((WIDTH,)), np.random.default_rng(1000).standard_normal((20_000, WIDTH))
    points /= np.sqrt(np.mean(points**2, -1, keepdims=True))
    distances = np.linalg.norm(points - u, axis=-1)
    assert np.linalg.norm(project_to_sphere(u, 0.0) - u) <= distances.min()


def parameters(norm):
    return {name for (name,), _ in nnx.to_flat_state(nnx.state(norm))}


@pytest.mark.parametrize(
    ("affine", "on_s1", "on_the_sphere"),
    [
        ("none", set(), set()),
        ("scalar", {"shift", "log_scale"}, {"log_scale"}),
        ("elementwise", {"scale", "bias"}, {"scale"}),
    ],
)
@pytest.mark.usefixtures("float64")
def test_a_sphere_has_a_size_and_no_mean(affine, on_s1, on_the_sphere):
    assert parameters(build(affine)) == on_s1
    assert parameters(build_sphere(affine)) == on_the_sphere


@pytest.mark.usefixtures("float64")
def test_a_scale_a_feature_follows_the_projection_onto_the_sphere(relative_difference, tolerances, draw_weights):
    norm = draw_weights(lambda: build_sphere("elementwise"))
    expected = project_to_sphere(draw(), 1e-6) * norm.scale[...]
    assert relative_difference(norm.project(0.0, draw()), expected) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_a_scalar_affine_kind_is_the_radius_of_the_sphere(tolerances):
    norm = build_sphere("scalar", 0.0)
    norm.log_scale = nnx.Param(jnp.asarray(np.log(DEVIATION)))
    size = jnp.sqrt(jnp.mean(jnp.square(norm.project(0.0, draw())), -1))
    np.testing.assert_allclose(size, DEVIATION, rtol=tolerances["float64"])
