"""The moving average of the weights, and which weights are measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.contrib import schedule_free_eval_params
from small_stage import SIZES, STAGES

from ctt.config import resolve_config
from ctt.config.serialize import config_from_dict, config_to_dict
from ctt.models.build import build_model
from ctt.training.digest import tree_sha256
from ctt.training.evaluate import split_model
from ctt.training.state import Batch, state_from_record, state_record, weights_record
from ctt.training.step import build_update
from ctt.training.weights import average_weights, measured_weights

STEPS, DECAY = 4, 0.3
BATCH = 6


@pytest.fixture(scope="module")
def train(tiny_config, fast_compilation):
    """Return a function that trains a few updates: the config and the states, the initial one first."""

    def run(overrides=None):
        config = tiny_config({"training.batch_size": BATCH, "model.dropout": 0.1, **(overrides or {})})
        state, update = build_update(config, build_model(config), 8)
        compiled = jax.jit(update, compiler_options=fast_compilation, donate_argnums=0)
        generator, states = np.random.default_rng(0), []
        for _ in range(STEPS):
            states.append(jax.tree.map(np.array, state))  # Copies, since the state is donated.
            images = jnp.asarray(generator.integers(0, 256, (BATCH, 4, 6, 1)), jnp.uint8)
            state, _ = compiled(state, Batch(images, jnp.asarray(generator.integers(0, 3, BATCH), jnp.int32)))
        return config, [*states, jax.tree.map(np.array, state)]

    return run


@pytest.fixture(scope="module")
def plain(train):
    return train()


@pytest.fixture(scope="module")
def averaged(train):
    return train({"optimizer.ema_decay": DECAY})


@pytest.fixture(scope="module")
def free(train):
    return train({"optimizer.name": "schedule_free", "optimizer.schedule": "constant", "optimizer.learning_rate": 1e-2})


@pytest.fixture(scope="module")
def normalized(train):
    """A CvT with batch normalisation, whose running averages move."""
    default = {"model.name": "cvt", "model.convolution_normalization": "batch", "optimizer.ema_decay": DECAY}
    return train({**default, **SIZES, "model.stages": STAGES})


def expected_average(states):
    average = states[0].weights
    for n, state in enumerate(states[1:]):
        decay = min(DECAY, (1 + n) / (10 + n))
        average = jax.tree.map(lambda old, new, d=decay: d * old + (1 - d) * new, average, state.weights)
    return average


def assert_close(received, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), received, expected)


def test_the_average_is_that_of_the_weights_with_its_correction(averaged):
    assert_close(averaged[1][-1].average, expected_average(averaged[1]))


def test_the_running_averages_of_batch_normalisation_are_averaged_too(normalized):
    _, states = normalized
    assert jax.tree.leaves(states[-1].statistics)
    assert tree_sha256(weights_record(states[0].statistics)) != tree_sha256(weights_record(states[-1].statistics))
    assert_close(states[-1].average, expected_average(states))


@pytest.mark.parametrize(("num_updates", "expected"), [(0, 0.1), (10, 0.55), (89, 90 / 99), (900, 0.95)])
def test_the_decay_grows_to_its_limit(num_updates, expected):
    average = average_weights(jnp.ones(2), jnp.zeros(2), decay=0.95, num_updates=jnp.int32(num_updates))
    np.testing.assert_allclose(average, expected, rtol=1e-5)


def test_decay_zero_is_the_last_weights():
    average = average_weights(jnp.ones(2), jnp.full(2, 3.0), decay=0.0, num_updates=jnp.int32(5))
    np.testing.assert_array_equal(average, 3)


def test_an_average_changes_nothing_of_the_training(plain, averaged):
    # But for round-off: it is another program, which a compiler may fuse otherwise.
    assert_close(plain[1][-1].params, averaged[1][-1].params)


@pytest.mark.parametrize("kind", ["plain", "averaged", "free", "normalized"])
def test_a_state_survives_its_record(kind, request):
    _, states = request.getfixturevalue(kind)
    template = states[0]
    restored = state_from_record(state_record(states[-1]), template)
    assert jax.tree.structure(restored) == jax.tree.structure(states[-1])
    assert jax.tree.all(jax.tree.map(np.array_equal, restored, states[-1]))


def test_a_record_without_average_has_no_new_entry(plain, averaged):
    assert set(state_record(plain[1][-1])) == {"step", "params", "opt_state"}
    assert set(state_record(averaged[1][-1])) == {"step", "params", "opt_state", "average"}


def test_without_average_the_weights_of_the_state_are_measured(plain):
    config, states = plain
    measured = measured_weights(config, states[-1])
    assert set(measured) == {"last"}
    assert jax.tree.all(jax.tree.map(np.array_equal, measured["last"], states[-1].weights))


def test_with_average_both_are_measured(normalized):
    config, states = normalized
    measured = measured_weights(config, states[-1])
    assert set(measured) == {"last", "ema"}
    assert jax.tree.structure(measured["last"]) == jax.tree.structure(measured["ema"])
    assert jax.tree.all(jax.tree.map(np.array_equal, measured["last"], states[-1].weights))
    assert_close(measured["ema"], states[-1].average)


def test_measured_weights_fit_the_model(normalized):
    config, states = normalized
    _, weights, _ = jax.eval_shape(lambda: split_model(build_model(config)))
    for value in measured_weights(config, states[-1]).values():
        assert jax.tree.structure(value) == jax.tree.structure(weights)


def test_schedule_free_measures_the_average_of_its_steps(free):
    config, states = free
    measured = measured_weights(config, states[-1])
    assert set(measured) == {"last"}
    assert_close(measured["last"], schedule_free_eval_params(states[-1].opt_state, states[-1].params))
    distance = jax.tree.map(lambda a, b: np.max(np.abs(a - b)), measured["last"], states[-1].params)
    assert max(jax.tree.leaves(distance)) > 1e-4


def test_schedule_free_is_found_with_clipping_and_decay_by_layer(tiny_config):
    overrides = {"optimizer.name": "schedule_free", "optimizer.schedule": "constant", "optimizer.layer_decay": 0.5}
    config = tiny_config({**overrides, "optimizer.clip_norm": 0.1})
    state = jax.eval_shape(lambda: build_update(config, build_model(config), 8)[0])
    measured = jax.eval_shape(lambda state: measured_weights(config, state), state)
    assert jax.tree.structure(measured) == jax.tree.structure({"last": state.weights})


def test_the_recipe_survives_json(averaged, free):
    for config, _ in (averaged, free):
        assert resolve_config(config_from_dict(config_to_dict(config))) == config
