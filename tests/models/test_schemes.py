"""A model's loop is its scheme: the numbers of `integrate`, of words by hand, and of the layers that schemes are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import name
from ctt.controls.timeline import operators_in_time
from ctt.dynamics.placement import place_operator
from ctt.models import Evolution, build_model
from ctt.models.operators import build_normalization, build_operators
from ctt.splitting import integrate, split_step

pytestmark = pytest.mark.usefixtures("float64")

U0 = np.random.default_rng(0).standard_normal((2, 3, 8))
PLACED = {
    "pre": {"normalization.placement": "pre"},
    "post": {"normalization.placement": "post", "normalization.affine": "none"},
    "tangent": {"normalization.placement": "tangent", "normalization.affine": "none"},
    "tangent on a moving set": {"normalization.placement": "tangent", "normalization.affine": "scalar"},
}


class Bend(nnx.Module):
    """A field that compiles in no time, and commutes with no other of its kind."""

    def __init__(self, rngs):
        self.kernel = nnx.Param(jax.random.normal(rngs.params(), (8, 8)))

    def vector_field(self, t, u):
        return jnp.tanh(u @ self.kernel[...])


def build_bends(config):
    """Return a maker of two operators `Bend`, placed as the config says."""

    def build(rngs):
        norm = config.normalization
        shared = build_normalization(config, rngs) if norm.shared else None
        return {
            label: place_operator(norm.placement, Bend(rngs), shared or build_normalization(config, rngs))
            for label in ("first", "second")
        }

    return build


@pytest.fixture
def build(tiny_config, draw_weights):
    """Return a maker of an `Evolution` in float64 with random weights."""

    def make(overrides, build_operators=build_operators):
        config = tiny_config({"model.dtype": "float64", "splitting.allow_reduced_order": True, **overrides})
        return draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))

    return make


@pytest.fixture
def run(call_jitted):
    """Return a function that runs an `Evolution` to its final state."""
    return lambda evolution: call_jitted(lambda e, u: e(u)[0], evolution, U0)


@pytest.fixture
def by_hand(call_jitted):
    """Return a function that runs a loop in Python over the steps of an `Evolution`, given the step."""

    def loop(evolution, step):
        def run(evolution, u):
            for n in range(evolution.steps):
                theta = jax.tree.map(lambda x, n=n: x[n // evolution.steps_per_slice], evolution.controls.coefficients)
                u = step(evolution.controls.freeze(theta), u, evolution.dt)
            return u

        return call_jitted(run, evolution, U0)

    return loop


@pytest.fixture
def integrate_network(call_jitted):
    """Return a function that integrates the equation of an `Evolution` with `ctt.integrate`."""

    def solve(evolution, scheme, substep):
        def run(evolution, u):
            return integrate(
                operators_in_time(evolution.controls),
                u,
                scheme=evolution.scheme if scheme is None else scheme,
                substep=substep,
                steps=evolution.steps,
                horizon=evolution.dt * evolution.steps,
                sampling="step",
                allow_reduced_order=True,
            )

        return call_jitted(run, evolution, U0)

    return solve


@pytest.mark.parametrize(
    ("scheme", "placed"),
    [
        (scheme, placed)
        for scheme in name.SCHEMES
        for placed in PLACED
        if (scheme, placed) != ("strang_staggered", "tangent on a moving set")  # Refused.
    ],
)
def test_the_loop_of_a_model_is_integrate_with_controls_frozen_in_each_step(
    build, run, integrate_network, relative_difference, scheme, placed
):
    evolution = build({"splitting.scheme": scheme, "splitting.horizon": 1.0, **PLACED[placed]}, build_bends)
    assert relative_difference(run(evolution), integrate_network(evolution, scheme, "euler")) < 1e-13


@pytest.mark.parametrize("scheme", ["strang_staggered", "swss"])
def test_the_loop_of_a_model_is_integrate_with_substeps_of_several_stages(
    build, run, integrate_network, relative_difference, scheme
):
    evolution = build({"splitting.scheme": scheme, "splitting.horizon": 1.0, "splitting.substep": "midpoint"})
    assert relative_difference(run(evolution), integrate_network(evolution, scheme, "midpoint")) < 1e-13


@pytest.mark.parametrize("scheme", [scheme for scheme in name.SCHEMES if scheme != "strang_staggered"])
def test_fewer_knots_than_steps_are_integrated_by_every_scheme(
    build, run, integrate_network, relative_difference, scheme
):
    knots = {"splitting.steps": 4, "controls.knots": 2 if scheme in ("lie", "swss") else 1}
    evolution = build({"splitting.scheme": scheme, "splitting.horizon": 1.0, **knots}, build_bends)
    assert relative_difference(run(evolution), integrate_network(evolution, scheme, "euler")) < 1e-13


@pytest.mark.parametrize(
    ("scheme", "operators"),
    [(scheme, ("feedforward",)) for scheme in ("swss", "strang_staggered", "yoshida4")]
    # Heat cannot flow backwards.
    + [(scheme, ("attention", "feedforward", "heat")) for scheme in name.SCHEMES if scheme != "yoshida4"],
)
def test_a_model_is_built_with_every_scheme_and_number_of_operators(
    tiny_config, draw_weights, call_jitted, scheme, operators
):
    config = tiny_config(
        {"splitting.scheme": scheme, "model.operators": operators, "splitting.allow_reduced_order": True}
    )
    model = draw_weights(lambda: build_model(config))
    logits = call_jitted(lambda m, x: m(x), model, np.full((1, 4, 6, 1), 7, np.uint8))
    assert logits.shape == (1, 3)
    assert bool(jnp.all(jnp.isfinite(logits)))


WORDS = {
    "lie": "attention feedforward",
    "lie_reversed": "feedforward attention",
    "strang": "attention/2 feedforward attention/2",
    "strang_reversed": "feedforward*0.5 attention feedforward*0.5",
    "swss": "0.5 (attention feedforward) + 0.5 (feedforward attention)",
    "parallel": "{attention+feedforward}",
}


@pytest.mark.parametrize("scheme", WORDS)
def test_a_named_scheme_is_the_word_that_a_user_would_write(build, run, relative_difference, scheme):
    word = {"splitting.scheme": "word", "splitting.word": WORDS[scheme]}
    received, expected = run(build(word)), run(build({"splitting.scheme": scheme}))
    assert relative_difference(received, expected) < 1e-14


def test_a_word_of_a_users_own_is_applied_letter_by_letter(build, run, by_hand, relative_difference):
    word = "attention*0.25 feedforward/4 attention*0.75 feedforward*0.75"
    evolution = build({"splitting.scheme": "word", "splitting.word": word})

    def step(operators, u, dt):
        attention, feedforward = operators
        for operator, fraction in ((attention, 0.25), (feedforward, 0.25), (attention, 0.75), (feedforward, 0.75)):
            u = u + fraction * dt * operator.vector_field(0.0, u)
        return u

    assert relative_difference(run(evolution), by_hand(evolution, step)) < 1e-13


def test_each_operator_has_the_substep_of_its_place(build, run, by_hand, relative_difference):
    evolution = build({"splitting.operator_substeps": ("midpoint", "euler"), "splitting.substep": "rk4"})

    def step(operators, u, dt):
        attention, feedforward = (operator.vector_field for operator in operators)
        u = u + dt * attention(0.0, u + dt / 2 * attention(0.0, u))
        return u + dt * feedforward(0.0, u)

    assert relative_difference(run(evolution), by_hand(evolution, step)) < 1e-13


def test_strang_reversed_with_euler_is_the_macaron_layer(build, run, by_hand, relative_difference):
    evolution = build({"splitting.scheme": "strang_reversed"})

    def macaron(operators, u, dt):
        attention, feedforward = operators
        u = u + 0.5 * feedforward.vector_field(0.0, u)
        u = u + attention.vector_field(0.0, u)
        return u + 0.5 * feedforward.vector_field(0.0, u)

    assert relative_difference(run(evolution), by_hand(evolution, macaron)) < 1e-13


def test_parallel_with_euler_adds_both_branches_to_one_state(build, run, by_hand, relative_difference):
    evolution = build({"splitting.scheme": "parallel"})

    def layer(operators, u, dt):
        return u + sum(operator.vector_field(0.0, u) for operator in operators)

    assert relative_difference(run(evolution), by_hand(evolution, layer)) < 1e-13


def test_the_mean_of_two_words_is_brought_back_to_the_set(build, run, by_hand, relative_difference):
    evolution = build({"splitting.scheme": "swss", **PLACED["post"]})

    def layer(operators, u, dt):
        def apply(u, operator):
            return operator.retract(0.0, u + dt * operator.vector_field(0.0, u))

        attention, feedforward = operators
        mean = (apply(apply(u, attention), feedforward) + apply(apply(u, feedforward), attention)) / 2
        return attention.retract(0.0, mean)

    received = run(evolution)
    assert relative_difference(received, by_hand(evolution, layer)) < 1e-13
    np.testing.assert_allclose(jnp.var(received, -1), 1, rtol=1e-4)


@pytest.mark.parametrize("knots", [2, 1])
@pytest.mark.parametrize("num_linear", [2, 3])
def test_a_literal_model_is_its_layer_again_and_again(build, run, by_hand, relative_difference, num_linear, knots):
    evolution = build(
        {
            "splitting.scheme": "literal",
            "normalization.placement": "post",
            "model.activation": "relu",
            "model.feedforward_width": 8,
            "model.feedforward_layers": num_linear,
            "controls.knots": knots,
        }
    )
    received = run(evolution)
    assert relative_difference(received, by_hand(evolution, lambda layers, u, dt: layers[0].step(u, 1))) < 1e-13
    assert evolution.field_evaluations == 2


def test_yoshida_is_three_strang_steps_of_different_lengths(build, run, by_hand, relative_difference):
    evolution = build({"splitting.scheme": "yoshida4", "splitting.horizon": 1.0}, build_bends)
    outer = 1 / (2 - 2 ** (1 / 3))
    strang = build({"splitting.scheme": "strang"}, build_bends)

    def step(operators, u, dt):
        for weight in (outer, 1 - 2 * outer, outer):
            u = split_step(strang.scheme, strang.substeps, operators=operators, u=u, t=0.0, dt=weight * dt)
        return u

    assert relative_difference(run(evolution), by_hand(evolution, step)) < 1e-13


@pytest.mark.parametrize(
    ("scheme", "substep", "evaluations"),
    [
        ("lie", "euler", 2),
        ("strang", "midpoint", 6),
        ("parallel", "rk4", 8),
        ("swss", "euler", 4),
        ("yoshida4", "euler", 9),
    ],
)
def test_the_evaluations_of_a_model_are_counted(build, scheme, substep, evaluations):
    evolution = build({"splitting.scheme": scheme, "splitting.substep": substep, "splitting.steps": 2})
    assert evolution.field_evaluations == 2 * evaluations
