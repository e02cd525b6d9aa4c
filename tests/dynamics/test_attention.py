import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from ctt.config.error import InputError
from ctt.dynamics.attention import SelfAttention
from ctt.dynamics.attention import attend as attend_plainly

WIDTH, TOKENS = 8, 5
ALL_BIASES = ("query", "key", "value", "output")


def build(*, num_heads=2, biases=ALL_BIASES, dtype=jnp.float32, **arguments):
    return SelfAttention(
        WIDTH,
        num_heads,
        biases=biases,
        **arguments,
        dtype=dtype,
        param_dtype=jnp.promote_types(dtype, jnp.float32),
        rngs=nnx.Rngs(0),
    )


def draw(shape=(3, TOKENS, WIDTH), size=1.0, dtype=jnp.float32):
    return jnp.asarray(size * np.random.default_rng(1).standard_normal(shape), dtype)


@pytest.fixture(scope="module")
def attend(draw_weights, fast_compilation):
    """An attention with random weights, compiled."""
    module = draw_weights(build)
    return jax.jit(lambda u: module.vector_field(0.0, u), compiler_options=fast_compilation)


@given(permutation=st.permutations(range(TOKENS)))
def test_permuted_tokens_give_permuted_results(attend, relative_difference, tolerances, permutation):
    u, order = draw(), np.array(permutation)
    assert relative_difference(attend(u[:, order]), attend(u)[:, order]) < tolerances["float32"]


@pytest.mark.parametrize("example", range(3))
def test_an_example_does_not_depend_on_the_rest_of_its_batch(attend, relative_difference, tolerances, example):
    changed = (draw() * 7).at[example].set(draw()[example])
    assert relative_difference(attend(changed)[example], attend(draw())[example]) < tolerances["float32"]


@pytest.mark.parametrize("shape", [(TOKENS, WIDTH), (2, 3, TOKENS, WIDTH)])
def test_any_number_of_batch_axes_is_allowed(attend, relative_difference, tolerances, shape):
    u = draw(shape)
    expected = attend(u.reshape(-1, TOKENS, WIDTH)).reshape(shape)
    assert relative_difference(attend(u), expected) < tolerances["float32"]


def test_equal_tokens_give_equal_results(attend):
    u = jnp.broadcast_to(draw((3, 1, WIDTH)), (3, TOKENS, WIDTH))
    result = np.asarray(attend(u))
    np.testing.assert_allclose(result, np.broadcast_to(result[:, :1], result.shape), rtol=1e-5)


def test_equal_tokens_are_only_mapped_by_value_and_output(draw_weights, attend, relative_difference, tolerances):
    module = draw_weights(build)
    token = draw((3, 1, WIDTH))
    result = attend(jnp.broadcast_to(token, (3, TOKENS, WIDTH)))[:, :1]
    assert relative_difference(result, module.output(module.value(token))) < tolerances["float32"]


def test_the_result_depends_on_all_tokens(attend):
    moved = draw().at[:, 0].add(1.0)
    assert bool(jnp.all(jnp.max(jnp.abs(attend(moved) - attend(draw())), axis=-1) > 1e-4))


def test_a_bias_of_the_key_changes_nothing(draw_weights, call_jitted, relative_difference, tolerances):
    # It adds the same number to all scores of a row.
    module = draw_weights(build)
    before = call_jitted(lambda m, u: m.vector_field(0.0, u), module, draw())
    module.key.bias[...] = module.key.bias[...] + 2.0
    after = call_jitted(lambda m, u: m.vector_field(0.0, u), module, draw())
    assert relative_difference(after, before) < tolerances["float32"]


@pytest.fixture(params=["bfloat16", "float32", "causal"])
def extreme(request, draw_weights, call_jitted):
    """The result and its gradient for scores far beyond the range of an exponential."""
    is_causal = request.param == "causal"
    dtype = "float32" if is_causal else request.param
    module = draw_weights(lambda: build(dtype=jnp.dtype(dtype), is_causal=is_causal))

    def run(module, u):
        return jax.value_and_grad(lambda u: jnp.sum(module.vector_field(0.0, u).astype(jnp.float32)))(u)

    return call_jitted(run, module, draw(size=1e4, dtype=dtype))


def test_large_scores_give_finite_values(extreme):
    assert bool(jnp.isfinite(extreme[0]))


def test_large_scores_give_finite_gradients(extreme):
    assert bool(jnp.all(jnp.isfinite(extreme[1])))


def test_bfloat16_is_near_float32(draw_weights, call_jitted, attend, relative_difference, tolerances):
    module = draw_weights(lambda: build(dtype=jnp.bfloat16))
    narrow = call_jitted(lambda m, u: m.vector_field(0.0, u), module, draw(dtype=jnp.bfloat16))
    assert relative_difference(narrow, attend(draw())) < tolerances["bfloat16"]


@pytest.mark.parametrize("biases", [(), ("query",), ("value", "output"), ALL_BIASES])
def test_only_the_named_projections_have_a_bias(biases):
    module = nnx.eval_shape(lambda: build(biases=biases))
    assert tuple(name for name in ALL_BIASES if getattr(module, name).bias is not None) == biases


@pytest.fixture
def make(float64, draw_weights):
    """Return a maker of attentions in float64, all with the same random weights."""
    return lambda **arguments: draw_weights(lambda: build(dtype=jnp.float64, **arguments))


def draw_wide():
    return draw(dtype=jnp.float64)


WEIGHTS = (1.0, 2.0, 1.0, 3.0, 1.0)


def test_a_token_of_weight_two_counts_as_two_tokens(make, call_jitted, relative_difference, tolerances):
    copies = np.repeat(np.arange(TOKENS), np.asarray(WEIGHTS, int))
    _, firsts = np.unique(copies, return_index=True)
    expected = call_jitted(lambda m, u: m.vector_field(0.0, u[:, copies])[:, firsts], make(), draw_wide())
    received = make(token_weights=WEIGHTS).vector_field(0.0, draw_wide())
    assert relative_difference(received, expected) < tolerances["float64"]


@pytest.mark.parametrize("is_causal", [False, True])
def test_equal_token_weights_cancel(make, relative_difference, tolerances, is_causal):
    received = make(token_weights=np.full(TOKENS, 0.2), is_causal=is_causal).vector_field(0.0, draw_wide())
    expected = make(is_causal=is_causal).vector_field(0.0, draw_wide())
    assert relative_difference(received, expected) < tolerances["float64"]


def test_permuting_the_tokens_with_their_weights_permutes_the_result(make, relative_difference, tolerances):
    order = np.array([3, 0, 4, 1, 2])
    received = make(token_weights=np.array(WEIGHTS)[order]).vector_field(0.0, draw_wide()[:, order])
    expected = make(token_weights=WEIGHTS).vector_field(0.0, draw_wide())[:, order]
    assert relative_difference(received, expected) < tolerances["float64"]


def test_token_weights_are_no_parameters():
    plain, weighted = (nnx.eval_shape(lambda a=a: build(**a)) for a in ({}, {"token_weights": WEIGHTS}))
    assert jax.tree.structure(nnx.state(weighted)) == jax.tree.structure(nnx.state(plain))
    assert nnx.split(weighted)[0] != nnx.split(plain)[0]


def test_token_weights_have_no_axis_of_depth():
    structure, state = nnx.split(nnx.eval_shape(lambda: build(token_weights=WEIGHTS)))
    stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((3, *leaf.shape), leaf.dtype), state)
    fields = jax.eval_shape(jax.vmap(lambda theta: nnx.merge(structure, theta).vector_field(0.0, draw())), stacked)
    assert fields.shape == (3, *draw().shape)


@pytest.mark.parametrize("token", range(TOKENS))
def test_a_causal_token_does_not_depend_on_later_ones(make, token):
    causal, u = make(is_causal=True, token_weights=WEIGHTS), draw_wide()
    before, after = (causal.vector_field(0.0, v) for v in (u, u.at[:, token + 1 :].multiply(-3.0)))
    np.testing.assert_array_equal(after[:, : token + 1], before[:, : token + 1])


@pytest.mark.parametrize("token", [0, 2, 4])
def test_a_causal_token_sees_those_up_to_itself_as_if_they_were_all(
    make, call_jitted, relative_difference, tolerances, token
):
    causal = make(is_causal=True).vector_field(0.0, draw_wide())[:, token]
    expected = call_jitted(lambda m, u: m.vector_field(0.0, u)[:, -1], make(), draw_wide()[:, : token + 1])
    assert relative_difference(causal, expected) < tolerances["float64"]


@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, -1.0), (1.0, float("nan")), ((1.0, 2.0),)])
def test_token_weights_that_are_no_positive_numbers_are_refused(weights):
    with pytest.raises(InputError, match="must be a list of finite numbers > 0"):
        build(token_weights=weights)


def test_another_number_of_token_weights_than_tokens_is_refused():
    with pytest.raises(InputError, match="5 in all, got shape \\(2,\\)"):
        jax.eval_shape(lambda: build(token_weights=(1.0, 2.0)).vector_field(0.0, draw()))


@pytest.mark.usefixtures("float64")
def test_attention_is_the_weighted_mean_of_the_values(relative_difference, tolerances):
    query, key, value = (np.random.default_rng(i).standard_normal((2, TOKENS, 3)) for i in range(3))
    kernel = np.exp(0.7 * np.einsum("bif,bjf->bij", query, key)) * np.array(WEIGHTS)
    expected = np.einsum("bij,bjf->bif", kernel, value) / kernel.sum(-1, keepdims=True)
    arrays = [jnp.asarray(x) for x in (query, key, value)]
    received = attend_plainly(*arrays, scale=0.7, token_weights=WEIGHTS)
    assert relative_difference(received, expected) < tolerances["float64"]
