import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config.stage import convolved_size
from ctt.dynamics import ConvolutionalAttention, convolve_depthwise
from ctt.dynamics.convolution import ConvolutionalProjection

WIDTH, GRID = 6, (5, 4)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def grouped(u, kernel, stride, padding):
    """XLA's own depthwise convolution."""
    return jax.lax.conv_general_dilated(
        u,
        kernel[:, :, None, :],
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=u.shape[-1],
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("side", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (5, 3, 2), (2, 2, 0), (3, 1, 0)]
)
def test_a_depthwise_convolution_is_that_of_xla(side, stride, padding):
    u, kernel = jnp.asarray(draw(2, 7, 6, WIDTH)), jnp.asarray(draw(side, side, WIDTH, seed=1))

    def both(function):
        value, pullback = jax.vjp(lambda u, k: function(u, k), u, kernel)
        return value, pullback(jnp.cos(jnp.arange(value.size, dtype=value.dtype)).reshape(value.shape))

    received = both(lambda u, k: convolve_depthwise(u, k, stride=stride, padding=padding))
    expected = both(lambda u, k: grouped(u, k, stride, padding))
    sizes = tuple(convolved_size(n, kernel=side, stride=stride, padding=padding) for n in (7, 6))
    assert received[0].shape == (2, *sizes, WIDTH)
    for a, b in zip(jax.tree.leaves(received), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_inside_a_convolution_commutes_with_a_shift():
    u, kernel = jnp.asarray(draw(8, 8, WIDTH)), jnp.asarray(draw(3, 3, WIDTH, seed=1))
    convolve = lambda u: convolve_depthwise(u, kernel, padding=1)  # noqa: E731
    moved = convolve(jnp.roll(u, (1, 2), axis=(0, 1)))
    np.testing.assert_allclose(moved[3:-1, 4:-1], jnp.roll(convolve(u), (1, 2), axis=(0, 1))[3:-1, 4:-1], atol=1e-14)


@pytest.fixture
def build(draw_weights):
    def make(*, stride=2, normalization="layer", prefix=1, biases=("query", "key", "value", "output")):
        return draw_weights(
            lambda: ConvolutionalAttention(
                WIDTH,
                2,
                GRID,
                side=3,
                key_value_stride=stride,
                key_value_padding=1,
                normalization=normalization,
                biases=biases,
                scale=0.7,
                num_prefix_tokens=prefix,
                dtype=jnp.dtype("float64"),
                param_dtype=jnp.dtype("float64"),
                rngs=nnx.Rngs(0),
            )
        )

    return make


def by_hand(attention, u, prefix):
    """The attention in numpy, token by token and head by head."""

    def project(part):
        mesh = np.asarray(
            grouped(u[:, prefix:].reshape(-1, *GRID, WIDTH), part.depthwise.kernel[...], part.depthwise.stride, 1)
        )
        if part.normalization is not None:
            mesh = mesh - mesh.mean(-1, keepdims=True)
            mesh = mesh / np.sqrt((mesh**2).mean(-1, keepdims=True) + 1e-5)
            mesh = mesh * part.normalization.scale[...] + part.normalization.bias[...]
        tokens = np.concatenate([u[:, :prefix], mesh.reshape(len(u), -1, WIDTH)], axis=1)
        return tokens @ part.linear.kernel[...] + part.linear.bias[...]

    query, key, value = (project(part) for part in (attention.query, attention.key, attention.value))
    heads = []
    for head in (slice(0, 3), slice(3, 6)):
        scores = np.exp(0.7 * query[..., head] @ np.swapaxes(key[..., head], 1, 2))
        heads.append(scores / scores.sum(-1, keepdims=True) @ value[..., head])
    return np.concatenate(heads, -1) @ attention.output.kernel[...] + attention.output.bias[...]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("normalization", ["layer", "none"])
@pytest.mark.parametrize("stride", [1, 2])
def test_attention_is_that_of_the_convolved_tokens(build, stride, normalization, prefix):
    attention = build(stride=stride, normalization=normalization, prefix=prefix)
    u = draw(2, prefix + 20, WIDTH)
    received = attention.vector_field(0.0, jnp.asarray(u))
    np.testing.assert_allclose(received, by_hand(attention, u, prefix), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("normalization", ["layer", "none", "batch"])
def test_in_evaluation_an_image_does_not_see_its_batch(build, normalization):
    attention, u = build(normalization=normalization), jnp.asarray(draw(3, 21, WIDTH))
    alone = attention.vector_field(0.0, u[1])
    np.testing.assert_allclose(attention.vector_field(0.0, u)[1], alone, rtol=0, atol=1e-13)


def build_projection():
    return ConvolutionalProjection(
        WIDTH,
        GRID,
        side=3,
        stride=2,
        padding=1,
        normalization="batch",
        use_bias=False,
        num_prefix_tokens=0,
        dtype=jnp.dtype("float64"),
        param_dtype=jnp.dtype("float64"),
        rngs=nnx.Rngs(0),
    )


@pytest.mark.usefixtures("float64")
def test_in_training_the_statistics_are_those_of_the_batch():
    projection, u = build_projection(), jnp.asarray(draw(3, 20, WIDTH))
    field = projection.depthwise(u.reshape(3, *GRID, WIDTH))
    mean, variance = field.mean((0, 1, 2)), field.var((0, 1, 2))
    projection.train()
    received = projection(u)
    expected = ((field - mean) / jnp.sqrt(variance + 1e-5)).reshape(3, -1, WIDTH) @ projection.linear.kernel[...]
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(projection.normalization.mean[...], 0.1 * mean, rtol=0, atol=1e-14)
    np.testing.assert_allclose(projection.normalization.var[...], 0.9 + 0.1 * variance, rtol=0, atol=1e-14)
    assert projection.normalization.mean[...].dtype == np.float64


@pytest.mark.usefixtures("float64")
def test_a_projection_may_have_no_bias(build):
    attention = build(biases=("output",))
    assert attention.query.linear.bias is None
    assert attention.output.bias is not None
