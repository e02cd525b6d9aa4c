import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError
from ctt.config.resolve import resolve_config
from ctt.models import build_model, count_parameters
from ctt.models.lift import cut_patches, sincos_positions

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 1)).astype(np.uint8)


@pytest.fixture
def build(tiny_config, draw_weights):
    """Return a maker of small models with random weights."""
    return lambda overrides=None: draw_weights(lambda: build_model(tiny_config(overrides)))


def test_logits_have_one_value_a_class(build, call_jitted):
    assert call_jitted(lambda m, x: m(x), build(), IMAGES).shape == (2, 3)


def test_whole_numbers_and_floats_of_pixels_give_equal_logits(build, call_jitted, relative_difference):
    model = build()
    from_bytes, from_floats = (call_jitted(lambda m, x: m(x), model, x) for x in (IMAGES, IMAGES.astype(np.float32)))
    assert relative_difference(from_bytes, from_floats) == 0


def test_an_image_does_not_depend_on_the_rest_of_its_batch(build, call_jitted, relative_difference, tolerances):
    model = build()
    whole, alone = call_jitted(lambda m, x: (m(x)[:1], m(x[:1])), model, IMAGES)
    assert relative_difference(alone, whole) < tolerances["float32"]


@pytest.mark.parametrize(("pooling", "tokens"), [("mean", 6), ("cls", 7)])
@pytest.mark.parametrize("position", ["learned", "sincos"])
def test_a_class_token_is_one_token_more(build, call_jitted, pooling, tokens, position):
    model = build({"model.pooling": pooling, "model.position": position})
    assert call_jitted(lambda m, x: m.trajectory(x), model, IMAGES).shape == (3, 2, tokens, 8)


def test_fixed_positions_have_no_weights(build):
    assert build({"model.position": "sincos"}).lift.positions is None


def test_without_positions_and_class_token_the_order_of_patches_would_not_matter(build, call_jitted):
    model = build()
    mirrored = call_jitted(lambda m, x: m(x), model, IMAGES[:, :, [4, 5, 2, 3, 0, 1]])
    assert float(jnp.max(jnp.abs(mirrored - call_jitted(lambda m, x: m(x), model, IMAGES)))) > 1e-3


@pytest.mark.parametrize("shape", [(4, 6, 1), (2, 6, 4, 1), (2, 4, 6, 3), (2, 4, 6), (1, 2, 4, 6, 1)])
def test_images_of_another_shape_are_refused(build, shape):
    with pytest.raises(InputError, match=r"must have the shape \[batch, 4, 6, 1\], got \[.*\]\. Resize them"):
        build()(np.zeros(shape, np.uint8))


def test_the_trajectory_refuses_images_of_another_shape(build):
    with pytest.raises(InputError, match=r"must have the shape \[batch, 4, 6, 1\]"):
        build().trajectory(np.zeros((2, 5, 6, 1), np.uint8))


@pytest.fixture
def narrow_logits(build, call_jitted):
    """Logits of a model that computes in bfloat16, and of the same one in float32."""
    return [call_jitted(lambda m, x: m(x), build({"model.dtype": dtype}), IMAGES) for dtype in ("bfloat16", "float32")]


def test_bfloat16_gives_finite_logits_in_float32(narrow_logits):
    assert narrow_logits[0].dtype == jnp.float32
    assert bool(jnp.all(jnp.isfinite(narrow_logits[0])))


def test_bfloat16_is_near_float32(narrow_logits, relative_difference, tolerances):
    assert relative_difference(*narrow_logits) < 3 * tolerances["bfloat16"]


def test_bfloat16_keeps_weights_in_float32(build):
    state = nnx.state(build({"model.dtype": "bfloat16"}), nnx.Param)
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype("float32")}


def test_bfloat16_carries_the_state_in_bfloat16(build, call_jitted):
    model = build({"model.dtype": "bfloat16"})
    assert call_jitted(lambda m, x: m.trajectory(x), model, IMAGES).dtype == jnp.bfloat16


def test_float64_without_64_bits_is_refused(tiny_config):
    with pytest.raises(InputError, match=r"`model\.dtype` must be float32 or bfloat16 unless .*JAX_ENABLE_X64=1"):
        build_model(tiny_config({"model.dtype": "float64"}))


@pytest.mark.usefixtures("float64")
def test_float64_gives_logits_and_weights_in_float64(build, call_jitted):
    model = build({"model.dtype": "float64"})
    assert call_jitted(lambda m, x: m(x), model, IMAGES).dtype == jnp.float64
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))} == {jnp.dtype("float64")}


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_logits_are_the_read_out_of_the_end_of_the_trajectory(
    build, call_jitted, relative_difference, tolerances, placement
):
    def read(model, images):
        u = model.trajectory(images)[-1]
        u = model.normalization.project(0.0, u) if placement == "pre" else u
        return model.read_out(jnp.mean(u, axis=1)), model(images)

    received, expected = call_jitted(read, build({"normalization.placement": placement}), IMAGES)
    assert relative_difference(received, expected) < tolerances["float32"]


def test_post_normalisation_starts_on_the_constraint_set(build, call_jitted):
    model = build({"normalization.placement": "post", "normalization.affine": "none"})
    first = call_jitted(lambda m, x: m.trajectory(x)[0], model, IMAGES)
    np.testing.assert_allclose(jnp.mean(first, -1), 0, atol=1e-6)


@pytest.mark.parametrize("scheme", ["lie", "lie_reversed", "strang"])
def test_a_short_horizon_hardly_moves_the_state(build, call_jitted, scheme):
    model = build({"splitting.horizon": 1e-5, "splitting.scheme": scheme})
    states = call_jitted(lambda m, x: m.trajectory(x), model, IMAGES)
    assert float(jnp.max(jnp.abs(states[-1] - states[0]))) < 1e-3


def test_dropout_is_off_without_keys(build, call_jitted, relative_difference):
    dropped, plain = (call_jitted(lambda m, x: m(x), build({"model.dropout": rate}), IMAGES) for rate in (0.5, 0.0))
    assert relative_difference(dropped, plain) == 0


@pytest.fixture(scope="module")
def initial_weights(tiny_config):
    """Return the initial weights of a model, as a list of arrays."""
    return lambda config, seed=None: [np.asarray(x) for x in jax.tree.leaves(nnx.state(build_model(config, seed)))]


def test_the_initial_weights_are_a_function_of_the_seed(tiny_config, initial_weights):
    first, second = initial_weights(tiny_config(), 1), initial_weights(tiny_config(), 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_another_seed_draws_other_weights(tiny_config, initial_weights):
    first, second = initial_weights(tiny_config(), 1), initial_weights(tiny_config(), 2)
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_seed_is_that_of_the_config_unless_given(tiny_config, initial_weights):
    first, second = initial_weights(tiny_config({"seed": 7})), initial_weights(tiny_config(), 7)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_number_of_parameters_is_that_of_a_vit(tiny_config):
    model = nnx.eval_shape(lambda: build_model(tiny_config({"model.pooling": "cls"})))
    lift = 4 * 8 + 8 + 8 + 7 * 8
    layer = 4 * (8 * 8 + 8) + (8 * 12 + 12 + 12 * 8 + 8) + 2 * (8 + 8)
    assert count_parameters(model) == lift + 2 * layer + (8 + 8) + (8 * 3 + 3)


def test_a_config_is_resolved_when_a_model_is_built(tiny_config):
    model = nnx.eval_shape(lambda: build_model(resolve_config(tiny_config())))
    assert model.evolution.dt == 1.0


def test_patches_are_cut_row_by_row():
    image = jnp.arange(24).reshape(1, 4, 6, 1)
    np.testing.assert_array_equal(cut_patches(image, 2)[0, 4], [14, 15, 20, 21])


def test_fixed_positions_tell_all_patches_apart():
    table = sincos_positions(3, 4, 8)
    assert len(np.unique(table.round(6), axis=0)) == 12
