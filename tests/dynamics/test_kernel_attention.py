"""Attention with smooth kernels is a discretisation: it converges at the order of its quadrature.

Values are compared at the point (1/2, 1/2), a node of every mesh with an odd number of nodes, and as
the integral of the result against a smooth function.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config.error import InputError
from ctt.dynamics.attention import SelfAttention
from ctt.dynamics.kernel import KernelAttention, KernelLinear
from ctt.dynamics.mesh import Mesh
from ctt.dynamics.operator import Operator

TIME = 0.3
RULES = {"midpoint": Mesh.midpoint, "gauss_legendre": Mesh.gauss_legendre}

pytestmark = pytest.mark.usefixtures("float64")


def query_kernel(xi, y, h, t):
    return 2 * jnp.cos(xi + 2 * y + h) + t


def key_kernel(xi, y, h, t):
    return 2 * jnp.exp(-xi * y) + h * jnp.sin(3 * xi) - t


def value_kernel(xi, y, h, t):
    return jnp.cos(xi * y + h) + 0.5 * y * t


def output_kernel(xi, y, h, t):
    return jnp.exp(0.5 * xi) * (1 + y * h) + t


def build(tokens, features, heads=None, **arguments):
    kernels = {"query": query_kernel, "key": key_kernel, "value": value_kernel, "output": output_kernel}
    one_head = {} if heads is None else {"heads": heads}
    return KernelAttention(tokens=tokens, features=features, **one_head, **(kernels | arguments))


def sample(tokens, features):
    """A smooth state at the nodes of two meshes."""
    x, y = tokens.nodes[:, None], features.nodes
    return jnp.asarray(np.sin(3 * x + y) + x * y**2 + 0.5)


def weigh(tokens, features):
    """A smooth function at the nodes, times the quadrature weights."""
    return np.outer(tokens.weights * np.exp(tokens.nodes), features.weights * np.cos(features.nodes))


def at_the_centre(result, tokens, features):
    row, column = (int(np.argmin(np.abs(mesh.nodes - 0.5))) for mesh in (tokens, features))
    assert tokens.nodes[row] == pytest.approx(0.5, abs=1e-14)
    assert features.nodes[column] == pytest.approx(0.5, abs=1e-14)
    return result[row, column]


def as_an_integral(result, tokens, features):
    return np.sum(weigh(tokens, features) * result)


OBSERVATIONS = {"centre": at_the_centre, "integral": as_an_integral}


@pytest.fixture(scope="module")
def compute(fast_compilation):
    """Return a function of three meshes that gives the field at a smooth state, once for each set of arguments."""

    @functools.cache
    def run(tokens, features, heads, **arguments):
        field = jax.jit(build(tokens, features, heads, **arguments).vector_field, compiler_options=fast_compilation)
        return np.asarray(field(TIME, sample(tokens, features)))

    return run


@pytest.fixture(scope="module")
def observe(compute):
    """Return a function of rule, number of nodes and observation, which refines all three meshes together."""

    def measure(rule, num_nodes, observation, **arguments):
        mesh = RULES[rule](num_nodes)
        return float(OBSERVATIONS[observation](compute(mesh, mesh, mesh, **arguments), mesh, mesh))

    return measure


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_the_midpoint_rule_converges_at_second_order(observe, observation):
    sizes = (5, 9, 17, 33)
    reference = observe("gauss_legendre", 25, observation)
    errors = [abs(observe("midpoint", n, observation) - reference) for n in sizes]
    slopes = [
        np.log(e0 / e1) / np.log(n1 / n0) for (n0, e0), (n1, e1) in itertools.pairwise(zip(sizes, errors, strict=True))
    ]
    assert slopes[-1] == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_gauss_legendre_reaches_round_off_with_seventeen_nodes(observe, observation):
    reference = observe("gauss_legendre", 25, observation)
    assert abs(observe("gauss_legendre", 17, observation) - reference) < 1e-12 * abs(reference)


def test_gauss_legendre_gains_two_digits_from_four_nodes_to_eight(observe):
    reference = observe("gauss_legendre", 25, "integral")
    coarse, fine = (abs(observe("gauss_legendre", n, "integral") - reference) for n in (4, 8))
    assert fine < coarse / 100


def test_the_rules_of_two_kinds_agree_in_the_limit(observe):
    # Richardson's extrapolation of the midpoint rule, by a factor of three between the meshes.
    coarse, fine = (observe("midpoint", n, "centre") for n in (11, 33))
    assert fine + (fine - coarse) / 8 == pytest.approx(observe("gauss_legendre", 25, "centre"), rel=1e-5)


def test_scores_over_the_root_of_the_number_of_features_do_not_converge(observe):
    # sum_l Q K / sqrt(d) without weights is sqrt(d) times the right score on the unit interval.
    def observe_fixed_scale(num_nodes):
        def query(xi, y, h, t):
            return np.sqrt(num_nodes) * query_kernel(xi, y, h, t)

        return observe("midpoint", num_nodes, "integral", query=query)

    values = [observe_fixed_scale(n) for n in (9, 17, 33, 65)]
    changes = np.abs(np.diff(values))
    assert np.log2(changes[-2] / changes[-1]) < 0.8
    assert changes[-1] > 1e-2 * abs(values[-1])


def test_a_causal_attention_converges_at_first_order_in_the_tokens(compute):
    # Its own cell is seen whole, where the integral ends in the middle of it.
    features, heads = Mesh.gauss_legendre(9), Mesh.gauss_legendre(5)
    meshes = [Mesh.midpoint(n) for n in (27, 81, 243)]
    values = [at_the_centre(compute(mesh, features, heads, is_causal=True), mesh, features) for mesh in meshes]
    changes = np.abs(np.diff(values))
    assert np.log(changes[0] / changes[1]) / np.log(3) == pytest.approx(1, abs=0.1)


EDGES = [0.0, 0.1, 0.35, 0.4, 0.8, 1.0]
ORDER = np.array([3, 0, 4, 1, 2])


@pytest.fixture
def uneven():
    """A non-uniform mesh of tokens, one of features and one of heads."""
    return Mesh.from_edges(EDGES), Mesh.gauss_legendre(4), Mesh.from_edges([0.0, 0.3, 1.0])


def test_permuting_the_tokens_with_their_weights_permutes_the_result(uneven, relative_difference, tolerances):
    tokens, features, heads = uneven
    u = sample(tokens, features)
    expected = build(tokens, features, heads).vector_field(TIME, u)[ORDER]
    received = build(tokens.permute(ORDER), features, heads).vector_field(TIME, u[ORDER])
    assert relative_difference(received, expected) < tolerances["float64"]


def test_permuting_the_tokens_without_their_weights_changes_the_result(uneven, relative_difference):
    tokens, features, heads = uneven
    u = sample(tokens, features)
    expected = build(tokens, features, heads).vector_field(TIME, u)[ORDER]
    assert relative_difference(build(tokens, features, heads).vector_field(TIME, u[ORDER]), expected) > 1e-3


def test_permuting_the_features_with_their_weights_permutes_the_result(uneven, relative_difference, tolerances):
    tokens, features, heads = uneven
    order = np.array([2, 0, 3, 1])
    u = sample(tokens, features)
    expected = build(tokens, features, heads).vector_field(TIME, u)[:, order]
    received = build(tokens, features.permute(order), heads).vector_field(TIME, u[:, order])
    assert relative_difference(received, expected) < tolerances["float64"]


def test_permuting_the_heads_with_their_weights_changes_nothing(uneven, relative_difference, tolerances):
    tokens, features, heads = uneven
    u = sample(tokens, features)
    expected = build(tokens, features, heads).vector_field(TIME, u)
    received = build(tokens, features, heads.permute([1, 0])).vector_field(TIME, u)
    assert relative_difference(received, expected) < tolerances["float64"]


def absorb_weights(features, head):
    """A `SelfAttention` of one head whose matrices are the kernels times the weights of a uniform mesh."""
    size, xi, y = features.num_nodes, features.nodes[:, None], features.nodes
    module = SelfAttention(size, 1, biases=(), dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0))

    def sampled(kernel):
        return np.asarray(features.weights[:, None] * kernel(xi, y, head, TIME))

    # The sum over the features has a weight too, and the scale is 1 / sqrt(d) here.
    factor = features.weights[0] * np.sqrt(size / features.measure)
    module.query.kernel[...] = jnp.asarray(factor * sampled(query_kernel))
    module.key.kernel[...] = jnp.asarray(sampled(key_kernel))
    module.value.kernel[...] = jnp.asarray(sampled(value_kernel))
    module.output.kernel[...] = jnp.asarray(sampled(output_kernel))
    return module


@pytest.mark.parametrize("is_causal", [False, True])
def test_matrices_that_absorb_the_weights_give_the_same_on_a_uniform_mesh(relative_difference, tolerances, is_causal):
    tokens, features, heads = Mesh.midpoint(6, 0.0, 3.0), Mesh.midpoint(5, -1.0, 1.0), Mesh.from_edges([0.0, 0.3, 1.0])
    u = sample(tokens, features)
    expected = 0.0
    for head, weight in zip(heads.nodes, heads.weights, strict=True):
        module = absorb_weights(features, head)
        module.is_causal = is_causal
        expected = expected + weight * module.vector_field(TIME, u)
    received = build(tokens, features, heads, is_causal=is_causal).vector_field(TIME, u)
    assert relative_difference(received, expected) < tolerances["float64"]


def test_on_features_of_spacing_one_the_scale_is_the_usual_one(relative_difference, tolerances):
    features = Mesh.midpoint(5, 0.0, 5.0)
    assert features.weights[0] * np.sqrt(5 / features.measure) == pytest.approx(1.0)
    u = sample(Mesh.midpoint(4), features)
    received = build(Mesh.midpoint(4), features).vector_field(TIME, u)
    assert relative_difference(received, absorb_weights(features, 0.0).vector_field(TIME, u)) < tolerances["float64"]


def test_without_an_output_kernel_the_heads_are_summed_with_their_weights(uneven, relative_difference, tolerances):
    tokens, features, heads = uneven
    u = sample(tokens, features)

    def single(head):
        one = Mesh(np.array([head]), np.ones(1))
        return build(tokens, features, one, output=None).vector_field(TIME, u)

    expected = sum(weight * single(head) for head, weight in zip(heads.nodes, heads.weights, strict=True))
    received = build(tokens, features, heads, output=None).vector_field(TIME, u)
    assert relative_difference(received, expected) < tolerances["float64"]


@pytest.mark.parametrize("token", range(5))
def test_a_causal_token_does_not_depend_on_later_ones(uneven, token):
    tokens, features, heads = uneven
    attention, u = build(tokens, features, heads, is_causal=True), sample(tokens, features)
    before, after = (attention.vector_field(TIME, v) for v in (u, u.at[token + 1 :].multiply(-3.0)))
    np.testing.assert_array_equal(after[: token + 1], before[: token + 1])


def test_a_constant_kernel_is_allowed(uneven, relative_difference, tolerances):
    tokens, features, _ = uneven
    u = sample(tokens, features)
    attention = build(tokens, features, query=lambda xi, y, h, t: 0.0, value=lambda xi, y, h, t: 1.0, output=None)
    # All scores are 0, so the result is the mean over the domain.
    expected = np.full(u.shape, tokens.weights @ np.asarray(u) @ features.weights)
    assert relative_difference(attention.vector_field(TIME, u), expected) < tolerances["float64"]


def test_batch_axes_are_carried_along(uneven, relative_difference, tolerances):
    tokens, features, heads = uneven
    u = sample(tokens, features)
    attention = build(tokens, features, heads)
    batch = attention.vector_field(TIME, jnp.stack([u, 2 * u])[:, None])
    assert relative_difference(batch[1, 0], attention.vector_field(TIME, 2 * u)) < tolerances["float64"]


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_gradient_is_finite(uneven, fast_compilation, is_causal):
    tokens, features, heads = uneven
    attention = build(tokens, features, heads, is_causal=is_causal)
    differentiate = jax.grad(lambda u: jnp.sum(attention.vector_field(TIME, u) ** 2))
    gradient = jax.jit(differentiate, compiler_options=fast_compilation)(50 * sample(tokens, features))
    assert bool(jnp.all(jnp.isfinite(gradient)))
    assert float(jnp.max(jnp.abs(gradient))) > 0


def test_the_time_may_be_traced(uneven, relative_difference, tolerances):
    tokens, features, heads = uneven
    attention, u = build(tokens, features, heads), sample(tokens, features)
    received = jax.jit(attention.vector_field)(jnp.asarray(TIME), u)
    assert relative_difference(received, attention.vector_field(TIME, u)) < tolerances["float64"]


def test_bfloat16_is_near_float64(uneven, fast_compilation, relative_difference, tolerances):
    tokens, features, heads = uneven
    attention, u = build(tokens, features, heads), sample(tokens, features)
    field = jax.jit(attention.vector_field, compiler_options=fast_compilation)
    narrow = field(TIME, u.astype(jnp.bfloat16))
    assert narrow.dtype == jnp.bfloat16
    assert relative_difference(narrow, attention.vector_field(TIME, u)) < tolerances["bfloat16"]


def test_a_state_of_another_shape_is_refused(uneven):
    tokens, features, _ = uneven
    with pytest.raises(InputError, match=r"\(5, 4\) tokens and features, got shape \(5, 3\)"):
        build(tokens, features).vector_field(TIME, jnp.ones((5, 3)))


def linear_kernel(xi, y, t):
    return jnp.sin(xi + 2 * y) + t


def linear_bias(y, t):
    return jnp.cos(y) * t


def test_a_linear_layer_is_a_matrix_that_absorbs_the_weights(uneven, relative_difference, tolerances):
    tokens, features, _ = uneven
    u, y = np.asarray(sample(tokens, features)), features.nodes
    matrix = features.weights[:, None] * (np.sin(y[:, None] + 2 * y) + TIME)
    received = KernelLinear(linear_kernel, linear_bias, features).vector_field(TIME, jnp.asarray(u))
    assert relative_difference(received, u @ matrix + TIME * np.cos(y)) < tolerances["float64"]


def test_a_linear_layer_converges_to_its_integral():
    # The integral of xi sin(xi + 2 y) over [0, 1], at y = 1/2.
    exact = (np.sin(2) - 2 * np.cos(2)) - (np.sin(1) - np.cos(1)) - (np.cos(1) - np.cos(2))
    features = Mesh.gauss_legendre(17)
    layer = KernelLinear(lambda xi, y, t: jnp.sin(xi + 2 * y), None, features)
    received = layer.vector_field(TIME, jnp.asarray(features.nodes)[None])
    assert float(received[0, 8]) == pytest.approx(exact, rel=1e-13)


def test_a_linear_layer_of_another_width_is_refused():
    with pytest.raises(InputError, match="Sample it there"):
        KernelLinear(linear_kernel, None, Mesh.midpoint(4)).vector_field(0.0, jnp.ones((3, 5)))


def test_kernels_on_meshes_are_operators(uneven):
    tokens, features, _ = uneven
    assert isinstance(build(tokens, features), Operator)
    assert isinstance(KernelLinear(linear_kernel, None, features), Operator)


def test_an_operator_is_hashable(uneven):
    tokens, features, _ = uneven
    assert hash(build(tokens, features)) == hash(build(tokens, features))
