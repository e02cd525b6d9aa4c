"""The gradient of every scheme is that of the numbers it computes: it agrees with finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.dynamics import FeedForward, Normalization, PreNormalized, SelfAttention
from ctt.dynamics.placement import TangentNormalized
from ctt.splitting import SCHEMES
from ctt.splitting.integrate import build_marcher

pytestmark = pytest.mark.usefixtures("float64")

WIDTH, TOKENS, DT, EPSILON = 4, 3, 0.3, 1e-5


class Block(nnx.Module):
    """Attention and a feed-forward network, each with the normalisation where a placement wants it."""

    def __init__(self, placement):
        types = {"dtype": jnp.float64, "param_dtype": jnp.float64, "rngs": nnx.Rngs(0)}
        normalization = Normalization(WIDTH, affine="scalar", eps=1e-6, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
        attention = SelfAttention(WIDTH, 1, biases=(), **types)
        feedforward = FeedForward(WIDTH, WIDTH, activation="gelu", use_bias=True, **types)
        self.parts = nnx.List([placement(part, normalization) for part in (attention, feedforward)])


class Compiled:
    """One part of a block as an operator, compiled by itself and so once for all schemes."""

    is_tangent = True

    def __init__(self, call, weights, index):
        self._call, self._weights, self._index = call, weights, index

    def vector_field(self, t, u):
        return self._call(self._weights, t, u, index=self._index, method="vector_field")


class CompiledConstraint(Compiled):
    def retract(self, t, u):
        return self._call(self._weights, t, u, index=self._index, method="retract")


@pytest.fixture(scope="module", params=[PreNormalized, TangentNormalized], ids=["pre", "tangent"])
def block(request, draw_weights):
    """Weights, and a function that returns the operators of some weights."""
    with jax.enable_x64(True):
        graphdef, weights = nnx.split(draw_weights(lambda: Block(request.param), size=0.5))

    @functools.partial(jax.jit, static_argnames=("index", "method"))
    def call(weights, t, u, *, index, method):
        return getattr(nnx.merge(graphdef, weights).parts[index], method)(t, u)

    kind = CompiledConstraint if request.param is TangentNormalized else Compiled
    return weights, lambda weights: [kind(call, weights, index) for index in range(2)]


def draw_like(tree, seed):
    """Return a pytree of random numbers of the shapes of another."""
    generator = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(generator.standard_normal(x.shape)), tree)


def inner(u, v):
    return sum(float(jnp.sum(a * b)) for a, b in zip(jax.tree.leaves(u), jax.tree.leaves(v), strict=True))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_agree_with_central_differences(scheme, block):
    weights, build_operators = block

    def loss(weights, u0):
        marcher = build_marcher(build_operators(weights), scheme=scheme, substep="midpoint")
        u = marcher.step(marcher.begin(u0, 0.0, DT), 0.0, DT, is_last=False)
        return jnp.sum(jnp.sin(marcher.step(u, DT, DT, is_last=True)))

    point = weights, draw_like(jnp.zeros((TOKENS, WIDTH)), 1)
    gradients = jax.grad(loss, argnums=(0, 1))(*point)
    for part in range(2):
        direction = draw_like(point[part], 2 + part)

        def value(distance, part=part, direction=direction):
            moved = list(point)
            moved[part] = jax.tree.map(lambda x, d: x + distance * d, point[part], direction)
            return float(loss(*moved))

        difference = (value(EPSILON) - value(-EPSILON)) / (2 * EPSILON)
        assert abs(difference) > 1e-2
        np.testing.assert_allclose(inner(gradients[part], direction), difference, rtol=1e-6)
