"""Dropout, tied weights and the time step, seen through operators whose result shows them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError
from ctt.models import Evolution
from ctt.models.operators import build_operators
from ctt.splitting import split_step

TOKENS, WIDTH, BATCH = 5, 8, 3
KEYS = jax.random.split(jax.random.key(3), BATCH)
U0 = np.random.default_rng(0).standard_normal((BATCH, TOKENS, WIDTH)).astype(np.float32)


class Constant(nnx.Module):
    """The field that is a number everywhere."""

    def __init__(self, value):
        self.value = nnx.Param(jnp.asarray(value, jnp.float32))

    def vector_field(self, t, u):
        return jnp.full_like(u, 1.0) * self.value[...]


class Linear(Constant):
    """The field ``value * u``."""

    def vector_field(self, t, u):
        return self.value[...] * u


@pytest.fixture
def build(tiny_config):
    """Return a maker of an `Evolution` of hand-made operators."""

    def make(overrides, **operators):
        def build_operators(rngs):
            return {name: build_one() for name, build_one in operators.items()}

        return Evolution(tiny_config(overrides), build_operators, key=jax.random.key(0))

    return make


@pytest.fixture
def run(call_jitted):
    """Return a function that runs an `Evolution` to its final state."""

    def run_compiled(evolution, u0=U0, keys=KEYS):
        return np.asarray(call_jitted(lambda e, u, keys: e(u, keys=keys)[0], evolution, u0, keys))

    return run_compiled


def test_both_halves_of_strang_share_one_mask(run, build):
    # Each half adds 0 or 2 x 1/2: with a mask each, some entries would move by 1.
    overrides = {"splitting.scheme": "strang", "splitting.steps": 1, "model.dropout": 0.5}
    moved = run(build(overrides, first=lambda: Constant(1.0), second=lambda: Constant(0.0)), np.zeros_like(U0))
    np.testing.assert_array_equal(np.unique(moved), [0, 2])


def test_both_stages_of_a_midpoint_share_one_mask(run, build):
    # u + 2 (u + 2 u / 2) = 5 u where it is kept; with a mask each, 1 + 2 = 3 would occur.
    overrides = {"splitting.substep": "midpoint", "splitting.steps": 1, "model.dropout": 0.5}
    moved = run(build(overrides, only=lambda: Linear(1.0)), np.ones_like(U0))
    np.testing.assert_array_equal(np.unique(moved), [1, 5])


def test_two_operators_have_masks_of_their_own(run, build):
    overrides = {"splitting.steps": 1, "model.dropout": 0.5}
    moved = run(build(overrides, first=lambda: Constant(1.0), second=lambda: Constant(10.0)), np.zeros_like(U0))
    np.testing.assert_array_equal(np.unique(moved), [0, 2, 20, 22])


@pytest.mark.parametrize("knots", [2, 1])
def test_two_steps_have_masks_of_their_own(run, build, knots):
    overrides = {"splitting.steps": 2, "controls.knots": knots, "model.dropout": 0.5}
    moved = run(build(overrides, only=lambda: Constant(1.0)), np.zeros_like(U0))
    np.testing.assert_array_equal(np.unique(moved), [0, 2, 4])


def test_dropout_is_a_function_of_the_keys(run, build):
    evolution = build({"model.dropout": 0.5}, only=lambda: Constant(1.0))
    np.testing.assert_array_equal(run(evolution), run(evolution))


def test_other_keys_drop_other_entries(run, build):
    evolution = build({"model.dropout": 0.5}, only=lambda: Constant(1.0))
    assert not np.array_equal(run(evolution), run(evolution, keys=jax.random.split(jax.random.key(4), BATCH)))


@pytest.mark.parametrize("example", range(BATCH))
def test_dropout_of_an_example_depends_on_its_own_key_alone(run, build, example):
    evolution = build({"model.dropout": 0.5}, only=lambda: Linear(1.0))
    part = slice(example, example + 1)
    np.testing.assert_array_equal(run(evolution)[part], run(evolution, U0[part], KEYS[part]))


def test_without_keys_nothing_is_dropped(run, build):
    evolution = build({"model.dropout": 0.5, "splitting.steps": 2}, only=lambda: Constant(1.0))
    np.testing.assert_allclose(run(evolution, keys=None), U0 + 2, rtol=1e-6)


def test_rate_zero_with_keys_equals_no_keys(run, build):
    evolution = build({"model.dropout": 0.0}, only=lambda: Linear(0.5))
    np.testing.assert_array_equal(run(evolution), run(evolution, keys=None))


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_dropout_changes_a_transformer(tiny_config, draw_weights, call_jitted, placement):
    config = tiny_config({"model.dropout": 0.5, "normalization.placement": placement})
    evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    with_, without = call_jitted(lambda e, u: (e(u, keys=KEYS)[0], e(u)[0]), evolution, U0)
    assert float(jnp.max(jnp.abs(with_ - without))) > 0.1


def test_with_post_normalisation_a_state_with_dropout_is_on_the_constraint_set(tiny_config, draw_weights, call_jitted):
    config = tiny_config({"model.dropout": 0.5, "normalization.placement": "post", "normalization.affine": "none"})
    evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    u = call_jitted(lambda e, u: e(u, keys=KEYS)[0], evolution, U0)
    np.testing.assert_allclose(jnp.mean(u, -1), 0, atol=1e-5)


@pytest.mark.parametrize(("steps", "horizon"), [(1, 2.0), (4, 2.0), (3, 0.75)])
def test_the_step_is_the_horizon_over_the_number_of_steps(run, build, steps, horizon):
    overrides = {"splitting.steps": steps, "splitting.horizon": horizon}
    evolution = build(overrides, only=lambda: Constant(1.0))
    assert evolution.dt == horizon / steps
    np.testing.assert_allclose(run(evolution, keys=None), U0 + horizon, rtol=1e-5)


def test_refined_steps_tend_to_the_flow(run, build):
    overrides = {"splitting.steps": 64, "splitting.horizon": 1.0, "controls.knots": 1, "splitting.substep": "midpoint"}
    evolution = build(overrides, only=lambda: Linear(-1.0))
    np.testing.assert_allclose(run(evolution, keys=None), np.exp(-1) * U0, rtol=1e-3)


@pytest.fixture
def coarse_and_fine(tiny_config, draw_weights):
    """A transformer of 2 knots and 4 steps, and one of 4 knots with each coefficient repeated."""

    def make(knots):
        config = tiny_config({"controls.knots": knots, "splitting.steps": 4, "model.dtype": "float64"})
        return draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))

    def make_pair(knots):
        coarse, fine = make(knots), make(4)
        repeated = jax.tree.map(lambda x: jnp.repeat(x, 4 // knots, axis=0), coarse.controls.coefficients)
        nnx.update(fine.controls.operators, repeated)
        return coarse, fine

    return make_pair


@pytest.mark.parametrize("knots", [1, 2])
@pytest.mark.usefixtures("float64")
def test_fewer_knots_tie_consecutive_steps(coarse_and_fine, call_jitted, relative_difference, tolerances, knots):
    u0 = U0.astype(np.float64)
    coarse, fine = (call_jitted(lambda e, u: e(u)[0], evolution, u0) for evolution in coarse_and_fine(knots))
    assert relative_difference(coarse, fine) < tolerances["float64"]


def test_one_knot_has_the_weights_of_one_step(tiny_config):
    config = tiny_config({"controls.knots": 1, "splitting.steps": 4})
    evolution = nnx.eval_shape(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(evolution.controls.coefficients)} == {1}


def test_knots_that_do_not_divide_the_steps_are_refused(tiny_config):
    with pytest.raises(InputError, match=r"`controls\.knots` must divide `splitting\.steps` = 4, got 3"):
        tiny_config({"controls.knots": 3, "splitting.steps": 4})


@pytest.mark.parametrize(("scheme", "substep", "placement"), [("lie", "euler", "post"), ("strang", "midpoint", "pre")])
@pytest.mark.usefixtures("float64")
def test_a_trajectory_is_a_python_loop_over_steps(
    tiny_config, draw_weights, call_jitted, relative_difference, tolerances, scheme, substep, placement
):
    config = tiny_config(
        {
            "splitting.scheme": scheme,
            "splitting.substep": substep,
            "normalization.placement": placement,
            "model.dtype": "float64",
        }
    )
    evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))

    def loop(evolution, u):
        states = [u]
        for n in range(evolution.steps):
            theta = jax.tree.map(lambda x, n=n: x[n], evolution.controls.coefficients)
            operators = evolution.controls.freeze(theta)
            states.append(
                split_step(
                    evolution.scheme, evolution.substeps, operators=operators, u=states[-1], t=float(n), dt=evolution.dt
                )
            )
        return jnp.stack(states)

    looped, scanned = call_jitted(lambda e, u: (loop(e, u), e.trajectory(u)), evolution, U0.astype(np.float64))
    assert relative_difference(scanned, looped) < tolerances["float64"]


def test_a_running_cost_is_summed_over_the_steps(build):
    evolution = build({"splitting.steps": 4}, only=lambda: Constant(1.0))
    _, cost = evolution(jnp.asarray(U0), running_cost=lambda n, u, v, theta: jnp.mean(v - u) * n)
    np.testing.assert_allclose(cost, 0 + 1 + 2 + 3, rtol=1e-6)


def test_a_running_cost_goes_together_with_dropout(build):
    evolution = build({"splitting.steps": 4, "model.dropout": 0.5}, only=lambda: Constant(1.0))
    u, cost = evolution(jnp.asarray(U0), keys=KEYS, running_cost=lambda n, u, v, theta: jnp.sum(v - u))
    np.testing.assert_allclose(cost, jnp.sum(u - U0), rtol=1e-4)


class Flowing(Linear):
    """The field ``value * u``, with its flow."""

    def flow(self, u, t0, t1):
        return u * jnp.exp(self.value[...] * (t1 - t0))


@pytest.mark.parametrize(("substep", "is_masked"), [("euler", True), ("midpoint", True), ("exact", False)])
def test_dropout_spares_exact_flows_alone(run, build, substep, is_masked):
    evolution = build({"model.dropout": 0.5, "splitting.substep": substep}, only=lambda: Flowing(0.5))
    assert np.array_equal(run(evolution), run(evolution, keys=None)) is not is_masked
