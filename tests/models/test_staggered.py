"""The staggered Strang scheme: the outer operator has a control a node, the inner one a control a step."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError
from ctt.models import Evolution, build_model, measure_splitting
from ctt.models.operators import build_operators

pytestmark = pytest.mark.usefixtures("float64")

STEPS, HORIZON, BATCH = 4, 2.0, 3
DT = HORIZON / STEPS
U0 = np.random.default_rng(0).standard_normal((BATCH, 5, 8))
KEYS = jax.random.split(jax.random.key(3), BATCH)
STAGGERED = {"splitting.scheme": "strang_staggered", "splitting.steps": STEPS, "splitting.horizon": HORIZON}


class Constant(nnx.Module):
    """The field that is a number everywhere, a random one of each coefficient's own."""

    def __init__(self, rngs):
        self.value = nnx.Param(jax.random.normal(rngs.params(), ()))

    def vector_field(self, t, u):
        return jnp.ones_like(u) * self.value[...]


class Linear(Constant):
    """The field ``value * u``."""

    def vector_field(self, t, u):
        return self.value[...] * u


@pytest.fixture
def build(tiny_config):
    """Return a maker of a staggered `Evolution` of hand-made operators."""

    def make(overrides=None, **operators):
        config = tiny_config({**STAGGERED, **(overrides or {})})
        return Evolution(config, lambda rngs: {k: make(rngs) for k, make in operators.items()}, key=jax.random.key(0))

    return make


@pytest.fixture
def run(call_jitted):
    """Return a function that runs an `Evolution` to its final state."""
    return lambda evolution, u0=U0, keys=None: np.asarray(
        call_jitted(lambda e, u, keys: e(u, keys=keys)[0], evolution, u0, keys)
    )


def values(evolution, name):
    return np.asarray(evolution.controls.operators[name].value[...])


def test_the_outer_operator_has_a_coefficient_a_node_and_the_inner_one_a_coefficient_a_step(build):
    evolution = build(outer=Constant, inner=Constant)
    assert values(evolution, "outer").shape == (STEPS + 1,)
    assert values(evolution, "inner").shape == (STEPS,)


def test_with_three_operators_the_first_one_alone_is_nodal(build):
    evolution = build(outer=Constant, middle=Constant, inner=Constant)
    assert [values(evolution, name).shape[0] for name in ("outer", "middle", "inner")] == [STEPS + 1, STEPS, STEPS]


def test_a_single_operator_has_no_ends_to_merge(build, run):
    evolution = build(only=Constant)
    assert values(evolution, "only").shape == (STEPS,)
    np.testing.assert_allclose(run(evolution), U0 + DT * values(evolution, "only").sum())


def test_the_two_outer_nodes_have_half_weight(build, run):
    evolution = build(outer=Constant, inner=lambda rngs: Silent())
    weights = np.array([0.5] + [1.0] * (STEPS - 1) + [0.5])
    np.testing.assert_allclose(run(evolution), U0 + DT * weights @ values(evolution, "outer"))


class Silent:
    """The field that is zero."""

    def vector_field(self, t, u):
        return jnp.zeros_like(u)


def test_the_inner_operator_has_weight_one_in_every_step(build, run):
    evolution = build(outer=lambda rngs: Silent(), inner=Constant)
    np.testing.assert_allclose(run(evolution), U0 + DT * values(evolution, "inner").sum())


def test_nodes_and_steps_take_turns(build, run):
    # The operators do not commute, so the order in which they act shows.
    evolution = build(outer=Linear, inner=Constant)
    outer, inner = values(evolution, "outer"), values(evolution, "inner")
    u = U0 * (1 + DT / 2 * outer[0])
    for n in range(STEPS):
        u = u + DT * inner[n]
        u = u * (1 + (DT / 2 if n == STEPS - 1 else DT) * outer[n + 1])
    np.testing.assert_allclose(run(evolution), u)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("substep", "stages"), [("euler", 1), ("midpoint", 2)])
def test_there_is_one_outer_evaluation_more_than_there_are_steps(build, run, steps, substep, stages):
    counts = collections.Counter()

    class Counting(Constant):
        def vector_field(self, t, u):
            jax.debug.callback(lambda: counts.update([type(self).__name__]))
            return super().vector_field(t, u)

    class Outer(Counting):
        pass

    class Inner(Counting):
        pass

    evolution = build({"splitting.steps": steps, "splitting.substep": substep}, outer=Outer, inner=Inner)
    jax.block_until_ready(run(evolution))
    jax.effects_barrier()
    assert counts == {"Outer": (steps + 1) * stages, "Inner": steps * stages}
    assert evolution.field_evaluations == counts.total()


def test_operators_may_have_substeps_of_their_own(build):
    evolution = build({"splitting.operator_substeps": ("rk4", "euler")}, outer=Constant, inner=Constant)
    assert evolution.field_evaluations == 4 * (STEPS + 1) + STEPS


def test_a_trajectory_begins_with_the_initial_state_and_ends_with_the_final_one(build, run, call_jitted):
    evolution = build(outer=Linear, inner=Constant)
    states = call_jitted(lambda e, u: e.trajectory(u), evolution, U0)
    assert states.shape == (STEPS + 1, *U0.shape)
    np.testing.assert_array_equal(states[0], U0)
    np.testing.assert_allclose(states[-1], run(evolution), rtol=1e-14)


def test_between_the_ends_of_a_trajectory_the_outer_operator_is_half_a_step_ahead(build, call_jitted):
    evolution = build(outer=Constant, inner=lambda rngs: Silent())
    states = call_jitted(lambda e, u: e.trajectory(u), evolution, U0)
    outer = values(evolution, "outer")
    np.testing.assert_allclose(states[1], U0 + DT * (outer[0] / 2 + outer[1]))


def test_dropout_draws_a_mask_a_node_of_the_outer_operator(build, run):
    evolution = build({"model.dropout": 0.5}, outer=Constant, inner=lambda rngs: Silent())
    evolution.controls.operators["outer"].value = nnx.Param(2.0 ** jnp.arange(STEPS + 1))
    moved = run(evolution, np.zeros((BATCH, 40, 8)), KEYS) / (2 * DT)
    # Kept or dropped node by node: 1/2 or 0 of node 0, 2 or 0 of node 1, and so on; 2^4 / 2 of the last.
    sums = {0.5 * a + 2 * b + 4 * c + 8 * d + 8 * e for a, b, c, d, e in np.ndindex(2, 2, 2, 2, 2)}
    np.testing.assert_allclose(np.unique(moved), sorted(sums))


def test_dropout_draws_a_mask_a_step_of_the_inner_operator(build, run):
    evolution = build({"model.dropout": 0.5}, outer=lambda rngs: Silent(), inner=Constant)
    evolution.controls.operators["inner"].value = nnx.Param(2.0 ** jnp.arange(STEPS))
    moved = run(evolution, np.zeros((BATCH, 40, 8)), KEYS) / (2 * DT)
    np.testing.assert_allclose(np.unique(moved), np.arange(2**STEPS))


def test_dropout_leaves_the_mean_of_a_field_as_it_is(build, run):
    evolution = build({"model.dropout": 0.2}, outer=Constant, inner=lambda rngs: Silent())
    evolution.controls.operators["outer"].value = nnx.Param(jnp.ones(STEPS + 1))
    moved = run(evolution, np.zeros((BATCH, 200, 8)), KEYS)
    np.testing.assert_allclose(moved.mean(), HORIZON, rtol=0.02)


@pytest.fixture
def transformer(tiny_config, draw_weights):
    """Return a maker of a staggered Transformer in float64 with random weights."""

    def make(overrides=None):
        config = tiny_config({"model.dtype": "float64", **STAGGERED, "splitting.steps": 2, **(overrides or {})})
        return draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))

    return make


@pytest.fixture
def differentiate(fast_compilation):
    """Return a function that returns the gradient of a number of the final state in all coefficients."""

    def gradient(evolution, keys=None):
        graphdef, state = nnx.split(evolution)

        def loss(state):
            return jnp.sum(jnp.sin(nnx.merge(graphdef, state)(U0, keys=keys)[0]))

        return jax.jit(jax.grad(loss), compiler_options=fast_compilation)(state)["controls"]["operators"]

    return gradient


def test_the_gradient_reaches_every_node_and_every_step(transformer, differentiate):
    gradient = differentiate(transformer())
    sizes = {
        name: np.abs(
            np.stack([np.asarray(x).reshape(x.shape[0], -1).max(1) for x in jax.tree.leaves(gradient[name])])
        ).max(0)
        for name in ("attention", "feedforward")
    }
    assert sizes["attention"].shape == (3,)
    assert sizes["feedforward"].shape == (2,)
    assert all(bool(np.all(size > 1e-6)) for size in sizes.values())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputed_activations_give_the_gradient_of_stored_ones(
    transformer, differentiate, relative_difference, dropout
):
    keys = KEYS if dropout else None
    stored, recomputed = (
        differentiate(transformer({"gradient.method": method, "model.dropout": dropout}), keys)
        for method in ("store", "remat")
    )
    assert relative_difference(recomputed, stored) < 1e-13


@pytest.mark.parametrize("placement", ["pre", "post", "tangent"])
def test_a_staggered_model_classifies_images(tiny_config, draw_weights, call_jitted, placement):
    config = tiny_config({**STAGGERED, "normalization.placement": placement, "normalization.affine": "none"})
    model = draw_weights(lambda: build_model(config))
    logits = call_jitted(lambda m, x: m(x), model, np.full((2, 4, 6, 1), 7, np.uint8))
    assert bool(jnp.all(jnp.isfinite(logits)))


def test_the_coefficients_are_those_that_strang_would_draw_and_one_more(build):
    staggered = build(outer=Constant, inner=Constant)
    strang = build({"splitting.scheme": "strang"}, outer=Constant, inner=Constant)
    np.testing.assert_array_equal(values(staggered, "outer")[:STEPS], values(strang, "outer"))
    np.testing.assert_array_equal(values(staggered, "inner"), values(strang, "inner"))


def test_the_splitting_error_sees_the_nodes_at_both_ends_of_a_step(build):
    evolution = build({"splitting.steps": 6, "splitting.horizon": 1.0}, outer=Constant, inner=Constant)
    evolution.controls.operators["outer"].value[...] = jnp.arange(7.0) ** 2
    measured = measure_splitting(evolution, jnp.zeros((1, 2, 8)))
    # The last increment against the first: half a step of the next node's push less half a step of this one's.
    np.testing.assert_allclose(measured["free_estimate"], (2 * np.arange(6) + 1) / 12, rtol=1e-12)


def test_what_operators_share_cannot_be_at_different_times(tiny_config):
    with pytest.raises(InputError, match="elementwise cannot be shared with the scheme strang_staggered"):
        tiny_config({**STAGGERED, "normalization.shared": True})
