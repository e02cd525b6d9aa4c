"""Every update rule: its formula, decoupled decay by name, clipping."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import schedule_free_eval_params

from ctt.config import OptimizerConfig
from ctt.config.name import OPTIMIZERS
from ctt.training.optimizer import RULES, Depth, Place, build_optimizer

RATE = 0.1
DEPTH = Depth(3, {"kernel": Place(np.array([1.0, 2.0]), (1,), (2,)), "bias": Place(np.array([1.0, 2.0]))})


def draw(seed, size=1.0):
    generator = np.random.default_rng(seed)
    return {
        "kernel": jnp.asarray(size * generator.standard_normal((2, 3, 4)), jnp.float32),
        "bias": jnp.asarray(size * generator.standard_normal((2, 4)), jnp.float32),
    }


def build(name, *, rate=RATE, **fields):
    given = {"weight_decay": 0.0, "clip_norm": None, "schedule": "constant", **fields}
    return build_optimizer(OptimizerConfig(name=name, **given), lambda step: rate, DEPTH)


def walk(optimizer, params, gradients):
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = jax.jit(optimizer.update)(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def test_the_rules_are_those_that_the_command_line_offers():
    assert tuple(RULES) == OPTIMIZERS


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_decay_is_decoupled_and_of_kernels_alone(name):
    params, gradient = draw(0), draw(1)
    (plain, _), (decayed, _) = (walk(build(name, weight_decay=decay), params, [gradient]) for decay in (0.0, 0.5))
    np.testing.assert_allclose(decayed["kernel"] - plain["kernel"], -RATE * 0.5 * params["kernel"], atol=1e-6)
    np.testing.assert_array_equal(decayed["bias"], plain["bias"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_is_against_the_gradient(name):
    params, gradient = draw(0), draw(1)
    after, _ = walk(build(name), params, [gradient])
    for part in params:
        assert float(jnp.sum((after[part] - params[part]) * gradient[part])) < 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_clipping_comes_first(name):
    # Two gradients of one direction, both above the limit, are one gradient.
    params, gradient = draw(0), draw(1, size=100)
    large = jax.tree.map(lambda x: 3 * x, gradient)
    optimizer = build(name, clip_norm=0.5, momentum=0.0)
    (one, _), (other, _) = (walk(optimizer, params, [draw(2, size=1e-2), value]) for value in (gradient, large))
    for part in params:
        np.testing.assert_allclose(one[part], other[part], atol=1e-6)


def test_sgd_is_nesterovs_momentum():
    params, gradients = draw(0), [draw(seed) for seed in (1, 2, 3)]
    after, _ = walk(build("sgd", momentum=0.8), params, gradients)
    expected, velocity = np.asarray(params["kernel"], np.float64), 0.0
    for gradient in gradients:
        velocity = gradient["kernel"] + 0.8 * velocity
        expected = expected - RATE * (gradient["kernel"] + 0.8 * velocity)
    np.testing.assert_allclose(after["kernel"], expected, rtol=1e-4, atol=1e-5)


def test_lion_steps_by_a_sign():
    params, gradients = draw(0), [draw(seed) for seed in (1, 2)]
    after, _ = walk(build("lion", b1=0.7, b2=0.6), params, gradients)
    first, second = (np.asarray(gradient["kernel"]) for gradient in gradients)
    signs = np.sign(0.3 * first) + np.sign(0.7 * 0.4 * first + 0.3 * second)
    np.testing.assert_allclose(after["kernel"], params["kernel"] - RATE * signs, atol=1e-6)


def schedule_free_reference(gradients, start, rates, *, b1, b2):
    """Algorithm 1 of arXiv:2405.15682 for AdamW: y where gradients are taken, z the steps, x their average."""
    z, x, second, total = start, start, 0.0, 0.0
    for count, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        second = b2 * second + (1 - b2) * gradient**2
        z = z - rate * gradient / (np.sqrt(second / (1 - b2**count)) + 1e-8)
        weight = max(rates[:count]) ** 2
        total += weight
        share = weight / total if total else 0.0
        x = (1 - share) * x + share * z
    return (1 - b1) * z + b1 * x, x


@pytest.mark.parametrize("rates", [(0.1, 0.1, 0.1, 0.1), (0.0, 0.05, 0.1, 0.1), (0.02, 0.04, 0.06, 0.08)])
def test_schedule_free_averages_steps_weighted_by_the_rates_they_were_made_with(rates):
    params, gradients = draw(0), [draw(seed) for seed in (1, 2, 3, 4)]
    table = jnp.asarray(rates)
    config = OptimizerConfig(
        name="schedule_free", schedule="constant", weight_decay=0.0, clip_norm=None, b1=0.8, b2=0.9
    )
    after, state = walk(build_optimizer(config, lambda step: table[step]), params, gradients)
    average = schedule_free_eval_params(state, after)
    for part in params:
        values = [np.asarray(gradient[part], np.float64) for gradient in gradients]
        start = np.asarray(params[part], np.float64)
        y, x = schedule_free_reference(values, start, list(rates), b1=0.8, b2=0.9)
        np.testing.assert_allclose(after[part], y, atol=2e-6)
        np.testing.assert_allclose(average[part], x, atol=2e-6)


@pytest.mark.parametrize(("name", "layer_decay"), [("muon", 1.0), ("adamw", 0.5)])
def test_what_knows_the_depth_asks_for_it(name, layer_decay):
    config = OptimizerConfig(name=name, layer_decay=layer_decay)
    with pytest.raises(ValueError, match="locate_parameters"):
        build_optimizer(config, lambda step: RATE)
