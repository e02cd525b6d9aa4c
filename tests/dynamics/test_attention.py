import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from ctt.dynamics import SelfAttention

WIDTH, TOKENS = 8, 5
ALL_BIASES = ("query", "key", "value", "output")


def build(*, num_heads=2, biases=ALL_BIASES, dtype=jnp.float32):
    return SelfAttention(
        WIDTH,
        num_heads,
        biases=biases,
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


@pytest.fixture(params=["bfloat16", "float32"])
def extreme(request, draw_weights, call_jitted):
    """The result and its gradient for scores far beyond the range of an exponential."""
    module = draw_weights(lambda: build(dtype=jnp.dtype(request.param)))

    def run(module, u):
        return jax.value_and_grad(lambda u: jnp.sum(module.vector_field(0.0, u).astype(jnp.float32)))(u)

    return call_jitted(run, module, draw(size=1e4, dtype=request.param))


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
