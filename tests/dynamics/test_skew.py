"""Skew mixing rotates the features of a token."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config.error import InputError
from ctt.dynamics.operator import Operator
from ctt.dynamics.skew import SkewMixing

WIDTH = 6
METHODS = ("exponential", "cayley")


def build(method="exponential", dtype=jnp.float64):
    return SkewMixing(
        WIDTH, method=method, dtype=dtype, param_dtype=jnp.promote_types(dtype, jnp.float32), rngs=nnx.Rngs(0)
    )


def draw(dtype=jnp.float64):
    return jnp.asarray(np.random.default_rng(1).standard_normal((2, 5, WIDTH)), dtype)


@pytest.fixture(params=METHODS)
def skew(request, float64, draw_weights):
    """A mixing of each method with the same random matrix, in float64."""
    return draw_weights(lambda: build(request.param))


@pytest.fixture
def pair(float64, draw_weights):
    """The exact mixing and that of the Cayley transform, with the same matrix."""
    return [draw_weights(lambda method=method: build(method)) for method in METHODS]


def test_the_field_is_the_product_with_a_skew_matrix(skew, relative_difference, tolerances):
    kernel = np.asarray(skew.kernel[...])
    expected = draw() @ (kernel - kernel.T)
    assert relative_difference(skew.vector_field(0.0, draw()), expected) < tolerances["float64"]


def test_the_field_is_orthogonal_to_the_state(skew):
    np.testing.assert_allclose(jnp.sum(draw() * skew.vector_field(0.0, draw()), -1), 0, atol=1e-13)


@pytest.mark.parametrize("duration", [1e-3, 1.0, 50.0, -3.0])
def test_the_flow_keeps_the_norm_of_every_token(skew, duration):
    moved = skew.flow(draw(), 0.0, duration)
    np.testing.assert_allclose(jnp.linalg.norm(moved, axis=-1), jnp.linalg.norm(draw(), axis=-1), rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_flow_keeps_the_norm_in_float32(method, draw_weights, tolerances):
    module, u = draw_weights(lambda: build(method, jnp.float32)), draw(jnp.float32)
    norms = jnp.linalg.norm(module.flow(u, 0.0, 2.0), axis=-1)
    np.testing.assert_allclose(norms, jnp.linalg.norm(u, axis=-1), rtol=tolerances["float32"])


def test_the_flow_back_is_the_inverse(skew, relative_difference, tolerances):
    back = skew.flow(skew.flow(draw(), 0.3, 1.7), 1.7, 0.3)
    assert relative_difference(back, draw()) < tolerances["float64"]


def test_a_flow_of_no_time_is_the_identity(skew, relative_difference, tolerances):
    assert relative_difference(skew.flow(draw(), 0.5, 0.5), draw()) < tolerances["float64"]


def test_the_field_is_the_derivative_of_the_flow(skew, relative_difference, tolerances):
    _, derivative = jax.jvp(lambda t: skew.flow(draw(), 0.0, t), (0.0,), (1.0,))
    assert relative_difference(derivative, skew.vector_field(0.0, draw())) < tolerances["float64"]


def test_the_exponential_is_exact(pair, relative_difference, tolerances):
    exact, _ = pair
    kernel = np.asarray(exact.kernel[...])
    values, vectors = np.linalg.eig(kernel - kernel.T)
    rotation = (vectors @ np.diag(np.exp(1.5 * values)) @ np.linalg.inv(vectors)).real
    assert relative_difference(exact.flow(draw(), 1.0, 2.5), draw() @ rotation) < tolerances["float64"]


def test_two_exact_flows_in_a_row_are_one(pair, relative_difference, tolerances):
    exact, _ = pair
    twice = exact.flow(exact.flow(draw(), 0.0, 0.7), 0.7, 2.0)
    assert relative_difference(twice, exact.flow(draw(), 0.0, 2.0)) < tolerances["float64"]


def test_the_cayley_transform_is_second_order(pair, relative_difference):
    exact, cayley = pair

    def measure_error(steps):
        u, times = draw(), np.linspace(0.0, 1.0, steps + 1)
        for t0, t1 in itertools.pairwise(times):
            u = cayley.flow(u, t0, t1)
        return relative_difference(u, exact.flow(draw(), 0.0, 1.0))

    assert np.log2(measure_error(8) / measure_error(16)) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(("method", "order"), [("exponential", math.inf), ("cayley", 2)])
def test_the_order_of_the_flow_is_stated(method, order):
    assert build(method, jnp.float32).flow_order == order


def test_the_times_may_be_traced(skew, relative_difference, tolerances):
    expected = skew.flow(draw(), 0.5, 1.5)
    received = jax.jit(skew.flow)(draw(), jnp.array(0.5), jnp.array(1.5))
    assert relative_difference(received, expected) < tolerances["float64"]


def test_the_flow_has_a_finite_gradient_in_the_matrix(skew, fast_compilation):
    graphdef, state = nnx.split(skew)

    def loss(state):
        return jnp.sum(nnx.merge(graphdef, state).flow(draw(), 0.0, 1.0)[..., 0])

    gradient = jax.jit(jax.grad(loss), compiler_options=fast_compilation)(state)
    assert bool(jnp.all(jnp.isfinite(gradient["kernel"][...])))
    assert float(jnp.max(jnp.abs(gradient["kernel"][...]))) > 0.1


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_is_near_float32(method, draw_weights, relative_difference, tolerances):
    narrow, wide = (draw_weights(lambda d=d: build(method, d)) for d in (jnp.bfloat16, jnp.float32))
    received = narrow.flow(draw(jnp.bfloat16), 0.0, 1.0)
    assert received.dtype == jnp.bfloat16
    assert relative_difference(received, wide.flow(draw(jnp.float32), 0.0, 1.0)) < tolerances["bfloat16"]


def test_mixing_is_an_operator_that_runs_backwards():
    module = build(dtype=jnp.float32)
    assert isinstance(module, Operator)
    assert module.is_reversible


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="got 'caylay': did you mean `cayley`"):
        build("caylay", jnp.float32)
