"""The optimiser, its schedule and the loss against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from ctt.config import AugmentationConfig, Config, ModelConfig, OptimizerConfig, SplittingConfig
from ctt.config.resolve import resolve_config
from ctt.models.build import build_model
from ctt.training.loss import cross_entropy
from ctt.training.optimizer import build_optimizer, build_schedule, decay_mask
from ctt.training.state import Batch
from ctt.training.step import build_update

KERNELS = {
    *(f"evolution.controls.operators.attention.operator.{name}.kernel" for name in ("query", "key", "value", "output")),
    *(f"evolution.controls.operators.feedforward.operator.{name}.kernel" for name in ("expand", "contract")),
    "lift.linear.kernel",
    "read_out.kernel",
}


def _name(path):
    return ".".join(str(getattr(key, "key", getattr(key, "name", ""))) for key in path).removesuffix(".value")


@pytest.fixture(scope="module")
def decays():
    """Whether each parameter of a model with every kind of parameter decays, by dotted path."""
    model = ModelConfig(width=8, num_heads=2, feedforward_width=12, pooling="cls", position="learned")
    config = Config(model=model, splitting=SplittingConfig(steps=3))
    params = nnx.state(nnx.eval_shape(lambda: build_model(config)), nnx.Param)
    return {_name(path): flag for path, flag in jax.tree_util.tree_leaves_with_path(decay_mask(params))}


def test_exactly_the_kernels_of_linear_maps_decay(decays):
    assert {name for name, flag in decays.items() if flag} == KERNELS


@pytest.mark.parametrize("part", ["bias", "scale", "positions", "class_token"])
def test_a_part_that_is_no_matrix_of_a_linear_map_is_exempt_from_decay(decays, part):
    flags = [flag for name, flag in decays.items() if name.endswith(part)]
    assert flags
    assert not any(flags)


def test_decay_shrinks_kernels_and_leaves_biases():
    params = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    optimizer = build_optimizer(OptimizerConfig(weight_decay=0.5), lambda step: 0.1)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -0.05 * np.ones((2, 2)), rtol=1e-6)
    np.testing.assert_array_equal(updates["bias"], np.zeros(2))


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (5, 0.05), (10, 0.1), (55, 0.1 * (0.2 + 0.8 * 0.5)), (100, 0.02), (200, 0.02)]
)
def test_the_schedule_warms_up_to_the_peak_and_falls_to_its_final_fraction(step, rate):
    config = OptimizerConfig(learning_rate=0.1, warmup_fraction=0.1, final_fraction=0.2)
    assert float(build_schedule(config, 100)(step)) == pytest.approx(rate, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("total", [1, 2, 6])
def test_a_schedule_without_warm_up_begins_at_the_peak(total):
    config = OptimizerConfig(learning_rate=0.1, warmup_fraction=0.0)
    assert float(build_schedule(config, total)(0)) == pytest.approx(0.1)


def test_the_first_gradient_is_clipped_to_the_largest_norm():
    # With b1 = b2 = 0 the first moment is the clipped gradient itself.
    params = {"kernel": jnp.zeros(2)}
    optimizer = build_optimizer(OptimizerConfig(clip_norm=0.5, b1=0.0, b2=0.0), lambda step: 1.0)
    _, state = optimizer.update({"kernel": jnp.array([3.0, 4.0])}, optimizer.init(params), params)
    np.testing.assert_allclose(optax.tree_utils.tree_get(state, "mu")["kernel"], [0.3, 0.4], rtol=1e-6)


def test_without_clip_norm_the_gradient_is_not_clipped():
    params = {"kernel": jnp.zeros(2)}
    optimizer = build_optimizer(OptimizerConfig(clip_norm=None, b1=0.0, b2=0.0), lambda step: 1.0)
    _, state = optimizer.update({"kernel": jnp.array([3.0, 4.0])}, optimizer.init(params), params)
    np.testing.assert_allclose(optax.tree_utils.tree_get(state, "mu")["kernel"], [3.0, 4.0], rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_cross_entropy_is_that_of_the_smoothed_labels(smoothing):
    generator = np.random.default_rng(0)
    logits, labels = generator.standard_normal((5, 7)).astype(np.float32), np.array([0, 6, 2, 2, 3])
    targets = (1 - smoothing) * np.eye(7)[labels] + smoothing / 7
    wide = logits.astype(np.float64)
    expected = -np.sum(targets * (wide - np.log(np.sum(np.exp(wide), axis=1, keepdims=True))), axis=1)
    received = cross_entropy(jnp.asarray(logits), jnp.asarray(labels), label_smoothing=smoothing)
    np.testing.assert_allclose(received, expected, rtol=1e-5)


def test_cross_entropy_of_huge_logits_is_finite():
    assert np.isfinite(cross_entropy(jnp.array([[1e4, -1e4]]), jnp.array([1]))).all()


@pytest.fixture(scope="module")
def updated(compilation_cache):
    """A state and a batch, and what two calls of the update return for them."""
    config = resolve_config(
        Config(
            augmentation=AugmentationConfig(crop_padding=1, flip=True),
            model=ModelConfig(patch_size=4, width=8, num_heads=2, feedforward_width=8, activation="relu", dropout=0.1),
            splitting=SplittingConfig(steps=2),
        )
    )
    state, update = build_update(config, build_model(config), 6)
    generator = np.random.default_rng(0)
    images = jnp.asarray(generator.integers(0, 256, (16, 8, 8, 1)), jnp.uint8)
    batch = Batch(images, jnp.asarray(generator.integers(0, 10, 16), jnp.int32))
    before = jax.tree.map(np.asarray, state)
    compiled = jax.jit(update)
    first = compiled(state, batch)
    return before, state, first, compiled(state, batch), compiled(first[0], batch)


def test_the_update_is_pure(updated):
    _, _, first, second, _ = updated
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), first, second))


def test_the_update_leaves_its_state_alone(updated):
    before, state, *_ = updated
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), before, state))


def test_the_update_returns_the_next_state_and_measures(updated):
    _, state, (after, metrics), _, _ = updated
    assert int(after.step) == int(state.step) + 1
    names = {"loss", "accuracy", "gradient_norm", "update_norm", "parameter_norm", "learning_rate"}
    assert set(metrics) == names


def test_the_update_keeps_the_structure_of_the_state(updated):
    _, state, (after, _), _, _ = updated
    assert jax.tree.structure(state) == jax.tree.structure(after)


def test_the_next_update_draws_other_dropout_and_augmentation(updated):
    # The first learning rate of warm-up is 0, so the weights are the same and only the draws differ.
    _, _, (_, first), _, (_, second) = updated
    assert float(first["learning_rate"]) == 0
    assert float(first["loss"]) != float(second["loss"])


def test_the_norms_are_those_of_the_update_and_of_the_weights_after_it(updated):
    _, _, (before, _), _, (after, metrics) = updated
    step = jax.tree.map(jnp.subtract, after.params, before.params)
    assert float(metrics["update_norm"]) == pytest.approx(float(optax.tree.norm(step)), rel=1e-4)
    assert float(metrics["parameter_norm"]) == pytest.approx(float(optax.tree.norm(after.params)), rel=1e-6)
