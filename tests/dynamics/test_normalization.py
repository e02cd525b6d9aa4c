"""Layer normalisation is the projection onto S1 = {u : mean_y u = 0, var_y u = 1}."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.dynamics import Normalization, lift_precision, project_to_s1

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
    """Points of S1(0, 1), uniformly distributed."""
    points = np.random.default_rng(seed).standard_normal((size, WIDTH))
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
@pytest.mark.parametrize("affine", ["elementwise", "none"])
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
