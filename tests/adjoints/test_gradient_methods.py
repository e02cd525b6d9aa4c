"""`store` and `remat` compute the same discrete gradient, with different memory."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.adjoints import GRADIENT_METHODS, build_rollout
from ctt.config import InputError
from ctt.dynamics import PLACEMENTS, Normalization
from ctt.models import Evolution
from ctt.models.operators import build_operators

pytestmark = pytest.mark.usefixtures("float64")

WIDTH = 8


class Mixing(nnx.Module):
    """``sin(u w)``, after the features were shifted by one or not: small, nonlinear, quick to compile."""

    def __init__(self, has_shift, dtype):
        self.has_shift = has_shift
        self.kernel = nnx.Param(jnp.zeros(WIDTH, dtype))

    def vector_field(self, t, u):
        return jnp.sin((jnp.roll(u, 1, axis=-1) if self.has_shift else u) * self.kernel[...])


def small_operators(config):
    place, dtype = PLACEMENTS[config.normalization.placement], jnp.dtype(config.model.dtype)

    def build(has_shift, rngs):
        norm = Normalization(WIDTH, affine="none", eps=1e-5, param_dtype=dtype, rngs=rngs)
        return place(Mixing(has_shift, dtype), norm)

    return lambda rngs: {"first": build(True, rngs), "second": build(False, rngs)}


@pytest.fixture
def compare_methods(tiny_config, draw_weights, relative_difference, fast_compilation):
    """Return the relative difference of the gradients of `remat` and `store`, for weights and initial state."""

    def compare(overrides, operators, *, has_dropout=False):
        graphdefs, state = {}, None
        for method in ("store", "remat"):
            config = tiny_config({**overrides, "gradient.method": method, "model.dropout": 0.3})
            evolution = draw_weights(lambda c=config: Evolution(c, operators(c), key=jax.random.key(0)))
            graphdefs[method], state = nnx.split(evolution)
        u0, weights = np.random.default_rng(1).standard_normal((2, 2, 3, WIDTH)).astype(config.model.dtype)
        keys = jax.random.split(jax.random.key(5), 2) if has_dropout else None

        def gradient(method, state, u0):
            return jax.grad(
                lambda state, u: jnp.sum(nnx.merge(graphdefs[method], state)(u, keys=keys)[0] * weights), argnums=(0, 1)
            )(state, u0)

        both = jax.jit(
            lambda state, u: (gradient("remat", state, u), gradient("store", state, u)),
            compiler_options=fast_compilation,
        )
        return relative_difference(*both(state, u0))

    return compare


# Every combination in float64, where a difference cannot hide, and each name once more in float32.
COMBINATIONS = [
    *itertools.product(("lie", "lie_reversed", "strang"), ("euler", "midpoint"), ("pre", "post"), ("float64",)),
    ("lie", "euler", "pre", "float32"),
    ("lie_reversed", "midpoint", "post", "float32"),
    ("strang", "midpoint", "pre", "float32"),
]


@pytest.mark.parametrize(("scheme", "substep", "placement", "dtype"), COMBINATIONS)
def test_remat_computes_the_gradient_of_store(compare_methods, tolerances, scheme, substep, placement, dtype):
    overrides = {
        "splitting.scheme": scheme,
        "splitting.substep": substep,
        "normalization.placement": placement,
        "model.dtype": dtype,
        "splitting.steps": 3,
    }
    assert compare_methods(overrides, small_operators) < tolerances[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remat_draws_the_same_dropout_again_in_the_backward_pass(compare_methods, tolerances, dtype):
    overrides = {"splitting.scheme": "strang", "model.dtype": dtype}
    assert compare_methods(overrides, small_operators, has_dropout=True) < tolerances[dtype]


def test_remat_computes_the_gradient_of_store_for_a_transformer_with_dropout(compare_methods, tolerances):
    assert compare_methods({"model.dtype": "float64"}, build_operators, has_dropout=True) < tolerances["float64"]


def test_remat_computes_the_gradient_of_store_with_fewer_knots_than_steps(compare_methods, tolerances):
    overrides = {"splitting.steps": 4, "controls.knots": 2, "model.dtype": "float64"}
    assert compare_methods(overrides, small_operators) < tolerances["float64"]


@pytest.mark.parametrize(("method", "placement"), [("store", "post"), ("remat", "pre")])
def test_the_gradient_of_a_transformer_agrees_with_finite_differences(
    tiny_config, draw_weights, fast_compilation, method, placement
):
    config = tiny_config({"gradient.method": method, "normalization.placement": placement, "model.dtype": "float64"})
    evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    graphdef, state = nnx.split(evolution)
    u0, weights = np.random.default_rng(1).standard_normal((2, 2, 3, WIDTH))
    value_and_gradient = jax.jit(
        jax.value_and_grad(lambda state: jnp.sum(nnx.merge(graphdef, state)(u0)[0] * weights)),
        compiler_options=fast_compilation,
    )
    generator, h = np.random.default_rng(2), 1e-5
    direction = jax.tree.map(lambda x: generator.standard_normal(x.shape), state)
    ahead, behind = (
        value_and_gradient(jax.tree.map(lambda x, d, s=s: x + s * h * d, state, direction))[0] for s in (1, -1)
    )
    gradient = value_and_gradient(state)[1]
    slope = sum(jnp.sum(g * d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-6)


def chain_step(u, theta, n):
    for _ in range(4):
        u = jnp.tanh(u @ theta)
    return u


def temporary_bytes(method, steps):
    def loss(theta, u0):
        return jnp.sum(build_rollout(method)(chain_step, theta, u0)[0])

    theta = jax.ShapeDtypeStruct((steps, 16, 16), jnp.float32)
    u0 = jax.ShapeDtypeStruct((256, 16), jnp.float32)
    return jax.jit(jax.grad(loss)).lower(theta, u0).compile().memory_analysis().temp_size_in_bytes


@pytest.fixture(scope="module")
def growth():
    """Growth of the temporary memory between 8 and 32 steps, by method."""
    return {method: temporary_bytes(method, 32) - temporary_bytes(method, 8) for method in ("store", "remat")}


def test_the_memory_of_remat_grows_less_with_the_steps_than_that_of_store(growth):
    assert growth["remat"] < growth["store"] / 2


def test_the_memory_of_remat_grows_by_one_state_a_step(growth):
    state = 256 * 16 * 4
    assert growth["remat"] < 1.5 * 24 * state


def test_all_methods_return_the_same_value():
    u0, theta = np.full((2, 3), 0.3), np.random.default_rng(0).standard_normal((4, 3, 3))
    values = [np.asarray(run(chain_step, theta, u0)[0]) for run in GRADIENT_METHODS.values()]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-14)


def test_an_unknown_method_shows_the_nearest():
    with pytest.raises(InputError, match=r"got 'rematt': did you mean `remat`\? Known: store, remat"):
        build_rollout("rematt")
