import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.dynamics import FeedForward
from ctt.dynamics.feedforward import ACTIVATIONS

WIDTH = 4


def build(activation="gelu", use_bias=True):
    return FeedForward(
        WIDTH, 6, activation=activation, use_bias=use_bias, dtype=jnp.float32, param_dtype=jnp.float32, rngs=nnx.Rngs(0)
    )


def draw():
    return jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, WIDTH)), jnp.float32)


def test_a_token_does_not_depend_on_the_others(draw_weights, relative_difference, tolerances):
    module = draw_weights(build)
    alone = jax.vmap(jax.vmap(lambda token: module.vector_field(0.0, token)))(draw())
    assert relative_difference(module.vector_field(0.0, draw()), alone) < tolerances["float32"]


def test_without_biases_zero_is_mapped_to_zero(draw_weights):
    module = draw_weights(lambda: build("relu", use_bias=False))
    np.testing.assert_array_equal(module.vector_field(0.0, jnp.zeros((5, WIDTH))), 0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_vanishes_at_zero(name):
    assert float(ACTIVATIONS[name](jnp.float32(0.0))) == 0.0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_the_identity_far_to_the_right(name):
    assert float(ACTIVATIONS[name](jnp.float32(20.0))) == 20.0


def test_relu_is_the_nearest_point_of_the_non_negative_cone():
    u = draw()
    candidates = jnp.abs(jnp.asarray(np.random.default_rng(1).standard_normal((500, *u.shape)), jnp.float32))
    assert bool(jnp.all(jnp.abs(ACTIVATIONS["relu"](u) - u) <= jnp.abs(candidates - u)))
