"""Operators as functions of time: the controls of the time at which a solver asks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.controls import Controls, PiecewiseConstant
from ctt.controls.timeline import TimedConstraint, TimedOperator, operators_in_time
from ctt.dynamics import Constrained, Normalization, Operator, PostNormalized
from ctt.dynamics.operator import find_flow, flow_order, is_bolted_on, is_reversible
from ctt.dynamics.placement import TangentNormalized

COUNT, HORIZON, WIDTH = 4, 2.0, 6
U = np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)


class Scale(nnx.Module):
    """The field ``weight * u``."""

    def __init__(self, rngs):
        self.weight = nnx.Param(jax.random.normal(rngs.params(), (WIDTH,)))

    def vector_field(self, t, u):
        return self.weight[...] * u * (1 + t)


class Grow(Scale):
    """The same with a flow of its own, of order 2, forwards alone."""

    flow_order = 2
    is_reversible = False

    def flow(self, u, t0, t1):
        return u * jnp.exp((t1 - t0) * self.weight[...])


def normalize(affine="scalar"):
    return Normalization(WIDTH, affine=affine, eps=1e-6, param_dtype=jnp.float32, rngs=nnx.Rngs(0))


def build(nodal=()):
    def build_operators(rngs):
        return {
            "scale": Scale(rngs),
            "grow": Grow(rngs),
            "post": PostNormalized(Grow(rngs), normalize()),
            "tangent": TangentNormalized(Scale(rngs), normalize()),
        }

    return Controls(build_operators, PiecewiseConstant(COUNT, HORIZON), key=jax.random.key(0), nodal=nodal)


@pytest.fixture
def controls(draw_weights):
    """Return controls of four operators, the scalars of their normalisations different at all times."""
    return draw_weights(build)


@pytest.fixture
def timed(controls):
    """Return the operators as functions of time, by name."""
    return dict(zip(controls.names, operators_in_time(controls), strict=True))


def freeze(controls, n):
    frozen = controls.freeze(jax.tree.map(lambda x: x[n], controls.coefficients))
    return dict(zip(controls.names, frozen, strict=True))


@pytest.mark.parametrize(("t", "n"), [(0.0, 0), (0.3, 0), (0.5, 1), (1.2, 2), (2.0, 3)])
@pytest.mark.parametrize("name", ["scale", "grow", "post", "tangent"])
def test_a_field_has_the_controls_of_the_time_at_which_it_is_asked(controls, timed, name, t, n):
    np.testing.assert_array_equal(timed[name].vector_field(t, U), freeze(controls, n)[name].vector_field(t, U))


def test_the_time_goes_to_the_field_too(timed):
    np.testing.assert_allclose(timed["scale"].vector_field(0.4, U), 1.4 * timed["scale"].vector_field(0.0, U), 1e-6)


@pytest.mark.parametrize(("t", "n"), [(0.3, 0), (1.2, 2)])
@pytest.mark.parametrize("name", ["post", "tangent"])
def test_a_constraint_has_the_set_of_the_time_at_which_it_is_asked(controls, timed, name, t, n):
    np.testing.assert_array_equal(timed[name].retract(t, U), freeze(controls, n)[name].retract(t, U))


def test_the_sets_of_two_times_differ(timed):
    assert not np.allclose(timed["post"].retract(0.3, U), timed["post"].retract(1.2, U))


@pytest.mark.parametrize("name", ["grow", "post"])
def test_a_flow_has_the_controls_of_the_middle_of_its_interval(controls, timed, name):
    # From 0.9, in the second interval, to 1.3: the middle is in the third.
    received = find_flow(timed[name])(U, 0.9, 1.3)
    np.testing.assert_array_equal(received, find_flow(freeze(controls, 2)[name])(U, 0.9, 1.3))


@pytest.mark.parametrize(
    ("name", "kind", "order", "has_flow", "goes_back", "bolted_on"),
    [
        ("scale", TimedOperator, math.inf, False, True, False),
        ("grow", TimedOperator, 2, True, False, False),
        ("post", TimedConstraint, 2, True, False, True),
        ("tangent", TimedConstraint, math.inf, False, True, False),
    ],
)
def test_what_an_operator_offers_is_offered_in_time(timed, name, kind, order, has_flow, goes_back, bolted_on):
    operator = timed[name]
    assert type(operator) is kind
    assert isinstance(operator, Operator)
    assert isinstance(operator, Constrained) is (kind is TimedConstraint)
    assert flow_order(operator) == order
    assert (find_flow(operator) is not None) is has_flow
    assert is_reversible(operator) is goes_back
    assert is_bolted_on(operator) is bolted_on


def test_operators_have_the_order_of_the_scheme(controls):
    assert [operator.index for operator in operators_in_time(controls)] == [0, 1, 2, 3]


def test_a_nodal_operator_is_asked_at_the_nearest_node(draw_weights):
    controls = draw_weights(lambda: build(nodal=("scale",)))
    scale = operators_in_time(controls)[0]
    for t, node in ((0.0, 0), (0.6, 1), (2.0, 4)):
        expected = np.asarray(controls.operators["scale"].weight[...])[node] * U * (1 + t)
        np.testing.assert_allclose(scale.vector_field(t, U), expected, rtol=1e-6)


def test_operators_in_time_go_through_a_compiled_function(timed, fast_compilation):
    run = jax.jit(lambda operator, t, u: operator.vector_field(t, u), compiler_options=fast_compilation)
    for t in (0.1, 1.9):
        np.testing.assert_allclose(run(timed["tangent"], t, U), timed["tangent"].vector_field(t, U), rtol=1e-5)


def test_a_gradient_reaches_the_coefficients_of_its_time_alone(controls):
    graphdef, state = nnx.split(controls)

    def loss(state):
        return jnp.sum(operators_in_time(nnx.merge(graphdef, state))[0].vector_field(1.2, U))

    gradient = np.asarray(jax.grad(loss)(state)["operators"]["scale"]["weight"][...])
    np.testing.assert_array_equal(np.abs(gradient).max(1) > 0, [False, False, True, False])
