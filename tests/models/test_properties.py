"""What holds for every state and every image: symmetries of the equation, independence, finite numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctt.config import name
from ctt.models import Evolution, build_model
from ctt.models.operators import build_operators

TOKENS, BATCH = 5, 4
PLACED = {
    "pre": {"normalization.placement": "pre"},
    "post": {"normalization.placement": "post", "normalization.affine": "none"},
    "tangent": {"normalization.placement": "tangent", "normalization.affine": "scalar"},
}
SEEDS = st.integers(0, 2**32 - 1)
few_examples = settings(max_examples=8)


def draw_state(seed):
    return np.random.default_rng(seed).standard_normal((2, TOKENS, 8))


@pytest.fixture(scope="module")
def evolve(tiny_config, draw_weights, fast_compilation):
    """Return a function from a placement, a scheme and more fields to an evolution in float64, compiled once."""

    @functools.cache
    def compile_evolution(placement, scheme, **fields):
        overrides = {"splitting.scheme": scheme, "splitting.horizon": 1.0, "splitting.allow_reduced_order": True}
        overrides |= PLACED[placement] | {f"model.{field}": value for field, value in fields.items()}
        config = tiny_config(overrides | {"model.dtype": "float64"})
        with jax.enable_x64(True):
            evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
            graphdef, state = nnx.split(evolution)
            run = jax.jit(lambda state, u: nnx.merge(graphdef, state)(u)[0], compiler_options=fast_compilation)

        def compute(u):
            with jax.enable_x64(True):
                return np.asarray(run(state, u))

        return compute

    return compile_evolution


@pytest.mark.parametrize("scheme", ["lie", "strang", "swss", "parallel", "yoshida4"])
@pytest.mark.parametrize("placement", PLACED)
@given(seed=SEEDS, order=st.permutations(range(TOKENS)))
@few_examples
def test_a_permutation_of_the_tokens_permutes_the_final_state(
    evolve, relative_difference, placement, scheme, seed, order
):
    run, u = evolve(placement, scheme), draw_state(seed)
    assert relative_difference(run(u[:, order]), run(u)[:, order]) < 1e-11


@pytest.mark.parametrize("placement", PLACED)
def test_causal_attention_tells_the_order_of_the_tokens(evolve, relative_difference, placement):
    run, u = evolve(placement, "strang", causal=True), draw_state(0)
    assert relative_difference(run(u[:, ::-1]), run(u)[:, ::-1]) > 1e-3


@pytest.mark.parametrize(
    ("placement", "scheme"),
    [("pre", "strang"), ("post", "strang"), ("tangent", "strang"), ("pre", "swss"), ("pre", "yoshida4")],
)
@given(seed=SEEDS, last=st.integers(0, TOKENS - 2))
@few_examples
def test_with_causal_attention_a_token_does_not_depend_on_those_after_it(evolve, placement, scheme, seed, last):
    run, u = evolve(placement, scheme, causal=True), draw_state(seed)
    changed = u.copy()
    changed[:, last + 1 :] = 3 * draw_state(seed + 1)[:, last + 1 :]
    before, after = run(u), run(changed)
    np.testing.assert_allclose(after[:, : last + 1], before[:, : last + 1], rtol=1e-12, atol=1e-12)
    assert np.abs(after[:, last + 1 :] - before[:, last + 1 :]).max() > 1e-6


@given(seed=SEEDS)
@few_examples
def test_without_causal_attention_the_first_token_depends_on_the_last(evolve, seed):
    run, u = evolve("pre", "strang"), draw_state(seed)
    changed = u.copy()
    changed[:, -1] *= -2
    assert np.abs(run(changed)[:, 0] - run(u)[:, 0]).max() > 1e-6


@pytest.fixture(scope="module")
def classify(tiny_config, draw_weights, fast_compilation):
    """Return a function from a placement to logits as a function of images, compiled once."""

    @functools.cache
    def compile_model(placement):
        graphdef, state = nnx.split(draw_weights(lambda: build_model(tiny_config(PLACED[placement]))))
        return functools.partial(
            jax.jit(lambda state, x: nnx.merge(graphdef, state)(x), compiler_options=fast_compilation), state
        )

    return compile_model


@pytest.mark.parametrize("placement", PLACED)
@given(seed=SEEDS, place=st.integers(0, BATCH - 1))
@few_examples
def test_the_logits_of_an_image_do_not_depend_on_its_batch(classify, placement, seed, place):
    generator = np.random.default_rng(seed)
    images, others = generator.integers(0, 256, (2, BATCH, 4, 6, 1)).astype(np.uint8)
    others[place] = images[0]
    logits = classify(placement)
    np.testing.assert_allclose(logits(others)[place], logits(images)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", name.SCHEMES)
@pytest.mark.parametrize("placement", PLACED)
def test_bfloat16_is_finite_with_every_placement_and_scheme(tiny_config, draw_weights, call_jitted, placement, scheme):
    if (placement, scheme) == ("tangent", "strang_staggered"):
        fields = PLACED[placement] | {"normalization.affine": "none"}  # A shared set would be refused.
    else:
        fields = PLACED[placement]
    fields = fields | {"splitting.scheme": scheme, "splitting.allow_reduced_order": True, "model.dtype": "bfloat16"}
    config = tiny_config(fields)
    evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    u = call_jitted(lambda e, u: e(u)[0], evolution, jnp.asarray(draw_state(0), jnp.bfloat16))
    assert u.dtype == jnp.bfloat16
    assert bool(jnp.all(jnp.isfinite(u)))
    assert float(jnp.std(u.astype(jnp.float32))) > 0.01


@pytest.fixture(scope="module")
def differentiate(tiny_config, draw_weights, fast_compilation):
    """Return a function from placement and set to logits and gradients of a constant image, compiled once."""

    @functools.cache
    def compile_gradient(placement, constraint):
        config = tiny_config(PLACED[placement] | {"normalization.constraint": constraint})
        model = draw_weights(lambda: build_model(config))
        # Without positions and biases the tokens of a constant image are all alike; a black one has only zeros.
        model.lift.positions = nnx.Param(jnp.zeros_like(model.lift.positions[...]))
        model.lift.linear.bias = nnx.Param(jnp.zeros_like(model.lift.linear.bias[...]))
        graphdef, state = nnx.split(model)

        def loss(state, images):
            logits = nnx.merge(graphdef, state)(images)
            return -jnp.sum(jax.nn.log_softmax(logits)[:, 0]), logits

        return functools.partial(jax.jit(jax.grad(loss, has_aux=True), compiler_options=fast_compilation), state)

    return compile_gradient


@pytest.mark.parametrize("constraint", ["s1", "sphere"])
@pytest.mark.parametrize("placement", PLACED)
@given(value=st.integers(0, 255))
@example(value=0.3 * 255)  # The mean of the pixels: a state of zeros.
@few_examples
def test_a_constant_image_has_finite_logits_and_gradients(differentiate, placement, constraint, value):
    gradient, logits = differentiate(placement, constraint)(np.full((1, 4, 6, 1), value, np.float32))
    assert logits.shape == (1, 3)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((gradient, logits)))


@pytest.fixture(scope="module")
def walk(tiny_config, draw_weights, fast_compilation):
    """Return a function from images to all states, the logits, and the logits of the last state by hand."""
    model = draw_weights(lambda: build_model(tiny_config(PLACED["tangent"] | {"splitting.scheme": "strang"})))
    graphdef, state = nnx.split(model)

    @functools.partial(jax.jit, compiler_options=fast_compilation)
    def compute(state, images):
        model = nnx.merge(graphdef, state)
        states = model.trajectory(images)
        shift, scale = model.normalization.shift[...], jnp.exp(model.normalization.log_scale[...])
        return states, model(images), model.read_out(jnp.mean(shift + scale * states[-1], axis=1))

    return lambda images: [np.asarray(part) for part in compute(state, images)]


@given(seed=SEEDS)
@few_examples
def test_a_tangent_model_is_on_the_set_of_its_frame_from_the_lift_to_the_read_out(walk, seed):
    images = np.random.default_rng(seed).integers(0, 256, (BATCH, 4, 6, 1)).astype(np.uint8)
    states, logits, expected = walk(images)
    np.testing.assert_allclose(states.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(np.square(states).mean(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
