"""The gradient of a batch in parts is that of the whole batch: augmentation, mixtures, dropout and all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import AugmentationConfig, OptimizerConfig
from ctt.data.augment import Augmented
from ctt.models.build import build_model
from ctt.training.accumulate import accumulate
from ctt.training.state import Batch
from ctt.training.step import build_update

BATCH = 12
GRADIENT = OptimizerConfig(
    name="sgd",
    momentum=0.0,
    weight_decay=0.0,
    clip_norm=None,
    schedule="constant",
    warmup_fraction=0.0,
    learning_rate=1.0,
)
MIXED = AugmentationConfig(crop_padding=1, flip=True, mixup=0.8, cutmix=1.0)


@pytest.fixture(scope="module")
def step(tiny_config, draw_weights, fast_compilation):
    """Return a function from a number of parts to the update, minus the gradient itself, and the measures."""

    @functools.cache
    def run(parts, augmentation=MIXED):
        config = tiny_config(
            {
                "augmentation": augmentation,
                "optimizer": GRADIENT,
                "training.batch_size": BATCH,
                "training.micro_batches": parts,
                "model.dtype": "float64",
                "model.dropout": 0.3,
                "model.stochastic_depth": 0.5,
            }
        )
        state, update = build_update(config, draw_weights(lambda: build_model(config)), 10)
        generator = np.random.default_rng(0)
        images = jnp.asarray(generator.integers(0, 256, (BATCH, 4, 6, 1)), jnp.uint8)
        batch = Batch(images, jnp.asarray(generator.integers(0, 3, BATCH), jnp.int32))
        after, metrics = jax.jit(update, compiler_options=fast_compilation)(state, batch)
        return jax.tree.map(jnp.subtract, after.params, state.params), metrics

    return run


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("parts", [3, 12])
def test_the_gradient_in_parts_is_that_of_the_whole(step, relative_difference, parts):
    (whole, measures), (split, others) = (step(n) for n in (1, parts))
    assert relative_difference(split, whole) < 1e-12
    for name, value in measures.items():
        assert float(others[name]) == pytest.approx(float(value), rel=1e-12)


@pytest.mark.usefixtures("float64")
def test_mixtures_change_the_gradient(step, relative_difference):
    # Else the test above would not see the partners of its examples.
    plain, mixed = step(1, AugmentationConfig())[0], step(1)[0]
    assert relative_difference(plain, mixed) > 1e-2


def test_a_part_has_every_so_manieth_example_with_its_own_key():
    keys = jax.random.split(jax.random.key(0), 6)
    seen = []

    def differentiate(params, statistics, batch, keys):
        seen.append((batch.images.shape, keys.shape))
        jax.debug.callback(
            lambda *x: parts.append([np.asarray(value).tolist() for value in x]),
            batch.labels,
            jax.random.key_data(keys),
        )
        return (jnp.float32(0), (jnp.float32(0), statistics)), params

    parts = []
    batch = Augmented(jnp.zeros((6, 2, 2, 1)), jnp.arange(6))
    jax.block_until_ready(accumulate(differentiate, 3)(jnp.zeros(()), nnx.State({}), batch, keys))
    jax.effects_barrier()
    data = np.asarray(jax.random.key_data(keys)).tolist()
    assert sorted(parts) == [[[m, m + 3], [data[m], data[m + 3]]] for m in range(3)]
    assert set(seen) == {((2, 2, 2, 1), (2,))}


def test_one_part_is_the_function_itself():
    assert accumulate(print, 1) is print
