"""Stochastic depth: a whole operator left out for an image, one draw an operator and step, at a rate linear in time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError, resolve_config
from ctt.config.schema import StagesConfig
from ctt.dynamics import PLACEMENTS, Normalization, depth_masks
from ctt.models import CvT, Evolution, build_model
from ctt.models.operators import build_operators

BATCH, TOKENS, WIDTH = 400, 3, 4
KEYS = jax.random.split(jax.random.key(3), BATCH)
ZEROS = np.zeros((BATCH, TOKENS, WIDTH), np.float32)


class Constant(nnx.Module):
    """The field that is a number everywhere."""

    def __init__(self, value):
        self.value = nnx.Param(jnp.asarray(value, jnp.float32))

    def vector_field(self, t, u):
        return jnp.ones_like(u) * self.value[...]


class Linear(Constant):
    """The field ``value * u``."""

    def vector_field(self, t, u):
        return self.value[...] * u


class Flowing(Linear):
    """The same, with its flow."""

    def flow(self, u, t0, t1):
        return u * jnp.exp(self.value[...] * (t1 - t0))


@pytest.fixture
def build(tiny_config):
    """Return a maker of an `Evolution` of hand-made operators."""

    def make(overrides, rates=None, **operators):
        return Evolution(
            tiny_config(overrides),
            lambda rngs: {name: build_one() for name, build_one in operators.items()},
            key=jax.random.key(0),
            stochastic_depth=rates,
        )

    return make


@pytest.fixture
def run(call_jitted):
    """Return a function that runs an `Evolution` to its final state, one number an image where all entries agree."""

    def run_compiled(evolution, u0=ZEROS, keys=KEYS):
        u = np.asarray(call_jitted(lambda e, u, keys: e(u, keys=keys)[0], evolution, u0, keys))
        np.testing.assert_array_equal(u, np.broadcast_to(u[:, :1, :1], u.shape))
        return u[:, 0, 0]

    return run_compiled


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.75])
def test_a_factor_is_zero_with_the_rate_and_has_mean_one(rate):
    masks = np.asarray(depth_masks(KEYS, 3, rate=rate, dtype=jnp.float32))
    assert masks.shape == (BATCH, 1, 1)
    np.testing.assert_allclose(np.unique(masks), [0, 1 / (1 - rate)], rtol=1e-6)
    assert abs(np.mean(masks == 0) - rate) < 4 * np.sqrt(rate * (1 - rate) / BATCH)


def test_a_factor_depends_on_its_own_key_alone():
    whole = depth_masks(KEYS, 3, rate=0.5, dtype=jnp.float32)
    np.testing.assert_array_equal(whole[7:9], depth_masks(KEYS[7:9], 3, rate=0.5, dtype=jnp.float32))


def test_an_operator_acts_on_all_of_an_image_or_on_nothing(run, build):
    overrides = {"splitting.steps": 1, "model.stochastic_depth": 0.5}
    moved = run(build(overrides, first=lambda: Constant(1.0), second=lambda: Constant(10.0)))
    np.testing.assert_array_equal(np.unique(moved), [0, 2, 20, 22])


def test_both_halves_of_strang_share_one_draw(run, build):
    overrides = {"splitting.scheme": "strang", "splitting.steps": 1, "model.stochastic_depth": 0.5}
    moved = run(build(overrides, first=lambda: Constant(1.0), second=lambda: Constant(0.0)))
    np.testing.assert_array_equal(np.unique(moved), [0, 2])


def test_both_stages_of_a_midpoint_share_one_draw(run, build):
    overrides = {"splitting.substep": "midpoint", "splitting.steps": 1, "model.stochastic_depth": 0.5}
    np.testing.assert_array_equal(np.unique(run(build(overrides, only=lambda: Linear(1.0)), ZEROS + 1)), [1, 5])


def draws(evolution, run, rates):
    """Return which steps acted for each image `[batch, steps]`: each moves it further than all before it together."""
    values = 16.0 ** np.arange(len(rates))
    evolution.controls.operators["only"].value = nnx.Param(jnp.asarray(values, jnp.float32))
    rest, acted = run(evolution) / evolution.dt, []
    for value in (values / (1 - np.asarray(rates)))[::-1]:
        acted.append(rest > value / 2)
        rest = rest - value * acted[-1]
    np.testing.assert_allclose(rest, 0, atol=1e-2)
    return np.stack(acted[::-1], axis=1)


@pytest.mark.parametrize("horizon", [1.0, 4.0])
def test_the_rate_of_a_step_is_linear_in_the_time_of_its_end(run, build, horizon):
    steps, rate = 4, 0.8
    overrides = {"splitting.steps": steps, "splitting.horizon": horizon, "model.stochastic_depth": rate}
    evolution = build(overrides, only=lambda: Constant(1.0))
    rates = [0.2, 0.4, 0.6, 0.8]
    dropped = 1 - draws(evolution, run, rates).mean(axis=0)
    assert np.all(np.abs(dropped - rates) < 4 * np.sqrt(0.25 / BATCH))


def test_twice_as_many_steps_have_the_same_rates_at_the_same_times(build):
    coarse, fine = (
        build(
            {"splitting.steps": n, "splitting.horizon": 2.0, "model.stochastic_depth": 0.6}, only=lambda: Constant(1.0)
        )
        for n in (2, 4)
    )
    np.testing.assert_allclose([coarse._drop_rate(n, 0) for n in range(2)], [fine._drop_rate(n, 0) for n in (1, 3)])


def test_a_node_of_a_staggered_scheme_has_the_rate_of_its_time(build):
    overrides = {"splitting.scheme": "strang_staggered", "splitting.steps": 2, "model.stochastic_depth": 0.6}
    evolution = build(overrides, outer=lambda: Constant(1.0), inner=lambda: Constant(1.0))
    np.testing.assert_allclose([evolution._drop_rate(node, 0) for node in range(3)], [0, 0.3, 0.6])
    np.testing.assert_allclose([evolution._drop_rate(n, 1) for n in range(2)], [0.3, 0.6])


def test_the_mean_of_a_field_stays_as_it_is(run, build):
    moved = run(build({"splitting.steps": 4, "model.stochastic_depth": 0.5}, only=lambda: Constant(1.0)))
    assert abs(moved.mean() - 4) < 4 * moved.std() / np.sqrt(BATCH)


def test_steps_draw_independently(run, build):
    acted = draws(build({"splitting.steps": 4}, (0.5, 0.5), only=lambda: Constant(1.0)), run, [0.5] * 4)
    assert np.all(np.abs(np.corrcoef(acted.T) - np.eye(4)) < 4 / np.sqrt(BATCH))


def test_without_keys_nothing_is_left_out(run, build):
    evolution = build({"model.stochastic_depth": 0.5, "splitting.steps": 2}, only=lambda: Constant(1.0))
    np.testing.assert_array_equal(run(evolution, keys=None), 2)


def test_it_does_not_change_the_draws_of_dropout(call_jitted, build):
    # With both, what dropout zeroes is zero, and the rest of an image is scaled as one.
    both, alone = (
        build({"model.dropout": 0.5, "model.stochastic_depth": rate, "splitting.steps": 1}, only=lambda: Constant(1.0))
        for rate in (0.5, 0.0)
    )
    both, alone = (
        np.asarray(call_jitted(lambda e, u, keys: e(u, keys=keys)[0], evolution, ZEROS, KEYS))
        for evolution in (both, alone)
    )
    acted = both.any(axis=(1, 2))
    np.testing.assert_array_equal(both[acted], 2 * alone[acted])
    assert 0.3 < acted.mean() < 0.7


@pytest.mark.parametrize(("substep", "is_masked"), [("midpoint", True), ("exact", False)])
def test_it_spares_exact_flows_alone(run, build, substep, is_masked):
    evolution = build({"model.stochastic_depth": 0.5, "splitting.substep": substep}, only=lambda: Flowing(0.5))
    assert np.array_equal(run(evolution, ZEROS + 1), run(evolution, ZEROS + 1, None)) is not is_masked


class Mixing(nnx.Module):
    """``sin(u w)``, small and nonlinear."""

    def __init__(self, dtype):
        self.kernel = nnx.Param(jnp.zeros(WIDTH, dtype))

    def vector_field(self, t, u):
        return jnp.sin(jnp.roll(u, 1, axis=-1) * self.kernel[...])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("scheme", "placement"), [("lie", "pre"), ("strang", "post"), ("strang", "tangent"), ("strang_staggered", "pre")]
)
def test_remat_draws_again_what_store_drew(
    tiny_config, draw_weights, relative_difference, fast_compilation, scheme, placement
):
    u0 = np.random.default_rng(1).standard_normal((8, TOKENS, WIDTH))
    states, graphdefs = [], {}
    for method in ("store", "remat"):
        config = tiny_config(
            {
                "splitting.scheme": scheme,
                "splitting.substep": "midpoint",
                "splitting.steps": 3,
                "normalization.placement": placement,
                "normalization.affine": "none",
                "model.dtype": "float64",
                "model.stochastic_depth": 0.6,
                "gradient.method": method,
            }
        )

        def make(config=config):
            def operators(rngs):
                norm = Normalization(WIDTH, affine="none", eps=1e-5, param_dtype=jnp.float64, rngs=rngs)
                return {n: PLACEMENTS[config.normalization.placement](Mixing(jnp.float64), norm) for n in ("a", "b")}

            return Evolution(config, operators, key=jax.random.key(0))

        graphdefs[method], state = nnx.split(draw_weights(make))
        states.append(state)

    def gradient(method, state, keys):
        return jax.grad(lambda state: jnp.sum(nnx.merge(graphdefs[method], state)(u0, keys=keys)[0] ** 3))(state)

    run = jax.jit(
        lambda state: [
            gradient("remat", state, KEYS[:8]),
            gradient("store", state, KEYS[:8]),
            gradient("store", state, None),
        ],
        compiler_options=fast_compilation,
    )
    again, stored, plain = run(states[0])
    assert relative_difference(again, stored) < 1e-12
    assert relative_difference(stored, plain) > 1e-3


STAGES = StagesConfig(
    widths=(4, 6),
    num_heads=(1, 2),
    feedforward_widths=(5, 7),
    steps=(1, 2),
    kernels=(3, 3),
    strides=(2, 1),
    paddings=(1, 1),
    projection_kernels=(3, 3),
    key_value_strides=(1, 1),
    key_value_paddings=(1, 1),
)


@pytest.fixture
def cvt(tiny_config):
    """Return a maker of the resolved config of a CvT of two stages."""

    def make(**fields):
        config = tiny_config()
        model = dataclasses.replace(type(config.model)(), name="cvt", stages=STAGES, **fields)
        splitting = dataclasses.replace(config.splitting, steps=6, horizon=None)
        controls = dataclasses.replace(config.controls, knots=3)
        return resolve_config(dataclasses.replace(config, model=model, splitting=splitting, controls=controls))

    return make


def test_the_stages_of_a_cvt_share_one_time(cvt):
    model = nnx.eval_shape(lambda: build_model(cvt(stochastic_depth=0.6)))
    assert isinstance(model, CvT)
    rates = [[float(e._drop_rate(n, 0)) for n in range(e.steps)] for e in model.evolutions]
    np.testing.assert_allclose(rates[0], [0.1, 0.2], rtol=1e-6)
    np.testing.assert_allclose(rates[1], [0.3, 0.4, 0.5, 0.6], rtol=1e-6)


@pytest.mark.parametrize("normalization", ["layer", "batch"])
def test_it_changes_a_cvt_in_training_alone(cvt, draw_weights, call_jitted, normalization):
    config = cvt(stochastic_depth=0.6, convolution_normalization=normalization)
    if normalization == "batch":
        config = dataclasses.replace(config, controls=dataclasses.replace(config.controls, knots=6))
    model = draw_weights(lambda: build_model(config))
    images = np.random.default_rng(0).integers(0, 256, (4, 4, 6, 1)).astype(np.uint8)
    model.train()
    with_, without = (
        call_jitted(lambda m, x, k: nnx.merge(*nnx.split(m), copy=True)(x, keys=k), model, images, keys)
        for keys in (KEYS[:4], None)
    )
    assert float(jnp.max(jnp.abs(with_ - without))) > 1e-3


def test_a_transformer_with_it_still_compiles_to_one_loop(tiny_config, draw_weights):
    def size(steps):
        config = tiny_config({"model.stochastic_depth": 0.3, "splitting.steps": steps})
        evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
        return len(str(jax.make_jaxpr(lambda u: evolution(u, keys=KEYS[:2])[0])(np.zeros((2, 6, 8), np.float32))))

    assert size(40) < 1.05 * size(4)


def test_the_literal_scheme_refuses_it(tiny_config):
    literal = {
        "splitting.scheme": "literal",
        "normalization.placement": "post",
        "model.activation": "relu",
        "model.feedforward_width": 8,
    }
    assert tiny_config(literal)
    with pytest.raises(InputError, match=r"`model\.stochastic_depth` must be 0\.0 with the scheme literal, got 0\.1"):
        tiny_config({**literal, "model.stochastic_depth": 0.1})
