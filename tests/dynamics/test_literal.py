"""The literal scheme at dt = 1 is the post-norm encoder layer of Vaswani et al., written here in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config.error import InputError
from ctt.dynamics.literal import LiteralLayer, advance_literally

WIDTH, TOKENS = 8, 5
ALL_BIASES = ("query", "key", "value", "output")

pytestmark = pytest.mark.usefixtures("float64")


def build(*, num_heads=2, dtype=jnp.float64, **arguments):
    options = {"num_linear": 2, "biases": ALL_BIASES, "use_bias": True, "affine": "elementwise", "eps": 1e-5}
    param_dtype = jnp.promote_types(dtype, jnp.float32)
    return LiteralLayer(
        WIDTH, num_heads, **(options | arguments), dtype=dtype, param_dtype=param_dtype, rngs=nnx.Rngs(0)
    )


def draw(dtype=jnp.float64):
    return jnp.asarray(np.random.default_rng(1).standard_normal((3, TOKENS, WIDTH)), dtype)


def apply_linear(linear, x):
    bias = 0.0 if linear.bias is None else np.asarray(linear.bias[...])
    return x @ np.asarray(linear.kernel[...]) + bias


def attend_plainly(attention, x, is_causal):
    """Multi-head attention, head by head: Vaswani et al., section 3.2."""
    size = WIDTH // attention.num_heads
    query, key, value = (apply_linear(p, x) for p in (attention.query, attention.key, attention.value))
    heads = []
    for head in range(attention.num_heads):
        part = slice(head * size, (head + 1) * size)
        scores = query[..., part] @ np.swapaxes(key[..., part], -1, -2) / np.sqrt(size)
        if is_causal:
            scores = np.where(np.arange(TOKENS)[:, None] >= np.arange(TOKENS), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(weights / weights.sum(-1, keepdims=True) @ value[..., part])
    return apply_linear(attention.output, np.concatenate(heads, -1))


def normalize_plainly(normalization, x, eps):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    scale, bias = normalization.scale, normalization.bias
    return y if scale is None else y * np.asarray(scale[...]) + np.asarray(bias[...])


def apply_encoder_layer(layer, u, eps, *, is_causal=False):
    """LN(x + FF(x)) with x = LN(u + Attention(u)): Vaswani et al., section 3.1, feed-forward matrices I + W_j."""
    u = np.asarray(u)
    x = normalize_plainly(layer.opening, u + attend_plainly(layer.attention, u, is_causal), eps)
    hidden = x
    for index, linear in enumerate(layer.linears):
        bias = 0.0 if linear.bias is None else np.asarray(linear.bias[...])
        hidden = hidden @ (np.eye(WIDTH) + np.asarray(linear.kernel[...])) + bias
        if index < len(layer.linears) - 1:
            hidden = np.maximum(hidden, 0)
    return normalize_plainly(layer.closing, x + hidden, eps)


@pytest.mark.parametrize("affine", ["none", "elementwise"])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("num_linear", [1, 2, 3])
def test_at_step_one_it_is_the_encoder_layer_of_vaswani(draw_weights, relative_difference, num_linear, eps, affine):
    layer = draw_weights(lambda: build(num_linear=num_linear, eps=eps, affine=affine))
    assert relative_difference(layer.step(draw(), 1), apply_encoder_layer(layer, draw(), eps)) < 1e-13


@pytest.mark.parametrize("num_heads", [1, 4, 8])
def test_any_number_of_heads_is_recovered(draw_weights, relative_difference, num_heads):
    layer = draw_weights(lambda: build(num_heads=num_heads))
    assert relative_difference(layer.step(draw(), 1.0), apply_encoder_layer(layer, draw(), 1e-5)) < 1e-13


def test_a_causal_layer_is_recovered(draw_weights, relative_difference):
    layer = draw_weights(lambda: build(is_causal=True))
    expected = apply_encoder_layer(layer, draw(), 1e-5, is_causal=True)
    assert relative_difference(layer.step(draw(), 1.0), expected) < 1e-13


def test_a_layer_without_biases_is_recovered(draw_weights, relative_difference):
    layer = draw_weights(lambda: build(biases=(), use_bias=False))
    assert relative_difference(layer.step(draw(), 1.0), apply_encoder_layer(layer, draw(), 1e-5)) < 1e-13


def test_with_the_same_eps_in_the_closing_projection_it_would_not_be_exact(draw_weights, relative_difference):
    layer = draw_weights(lambda: build(affine="none"))
    layer.closing.eps = layer.opening.eps
    difference = relative_difference(layer.step(draw(), 1.0), apply_encoder_layer(layer, draw(), 1e-5))
    assert 1e-7 < difference < 1e-4


def test_the_feed_forward_matrices_are_the_identity_plus_the_weights(draw_weights):
    layer = draw_weights(lambda: build(num_linear=3))
    expected = [np.eye(WIDTH) + np.asarray(linear.kernel[...]) for linear in layer.linears]
    np.testing.assert_array_equal(layer.feedforward_matrices(), expected)


def test_for_a_small_step_it_does_not_tend_to_the_identity(draw_weights, relative_difference):
    layer = draw_weights(lambda: build(affine="none", eps=0.0))
    on_the_set = layer.opening.project(0.0, draw())
    moves = [relative_difference(advance_literally(layer, on_the_set, dt), on_the_set) for dt in (1e-4, 1e-8)]
    assert moves[1] == pytest.approx(moves[0], rel=1e-3)
    assert moves[1] > 0.15


def test_for_one_linear_layer_and_a_small_step_it_is_near_the_identity(draw_weights, relative_difference):
    # There is one set only, S1, and the state is on it.
    layer = draw_weights(lambda: build(affine="none", eps=0.0, num_linear=1))
    on_the_set = layer.opening.project(0.0, draw())
    assert relative_difference(advance_literally(layer, on_the_set, 1e-6), on_the_set) < 1e-5


@pytest.mark.parametrize("dt", [0.5, 2.0, 0.0])
def test_another_step_is_refused_with_the_way_out(dt):
    layer = nnx.eval_shape(build)
    with pytest.raises(InputError, match=f"time steps of 1, got {dt}.*scheme lie with the placement"):
        layer.step(draw(), dt)


def test_no_linear_layer_is_refused():
    with pytest.raises(InputError, match="`num_linear` must be >= 1, got 0"):
        build(num_linear=0)


def test_the_initial_weights_are_small():
    layer = build(num_linear=3)
    assert len(layer.linears) == 3
    assert all(0.01 < float(jnp.std(linear.kernel[...])) < 0.03 for linear in layer.linears)


def test_bfloat16_is_near_float32(draw_weights, call_jitted, relative_difference):
    narrow, wide = (draw_weights(lambda d=d: build(dtype=d)) for d in (jnp.bfloat16, jnp.float32))
    received, expected = (
        call_jitted(lambda m, u: m.step(u, 1.0), module, draw(dtype))
        for module, dtype in ((narrow, jnp.bfloat16), (wide, jnp.float32))
    )
    assert received.dtype == jnp.bfloat16
    # A whole layer: attention, two linear maps and two normalisations in a row.
    assert relative_difference(received, expected) < 3e-2


def test_the_gradient_is_finite(draw_weights, fast_compilation):
    graphdef, state = nnx.split(draw_weights(build))

    def loss(state):
        return jnp.sum(nnx.merge(graphdef, state).step(draw(), 1.0)[..., 0])

    gradient = jax.jit(jax.grad(loss), compiler_options=fast_compilation)(state)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
