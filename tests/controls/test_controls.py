import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from ctt.config import InputError
from ctt.controls import BASES, Controls, PiecewiseConstant, evaluate_controls


class Scale(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jax.random.normal(rngs.params(), (3,)))

    def vector_field(self, t, u):
        return self.weight[...] * u


def build(num_coefficients, *, seed=0, horizon=1.0):
    basis = PiecewiseConstant(num_coefficients, horizon)
    return Controls(lambda rngs: {"first": Scale(rngs), "second": Scale(rngs)}, basis, key=jax.random.key(seed))


def weights(controls, name):
    return np.asarray(controls.operators[name].weight[...])


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_coefficient_depends_on_the_key_and_its_number_alone(name):
    np.testing.assert_array_equal(weights(build(8), name)[:4], weights(build(4), name))


def test_coefficients_are_all_different():
    drawn = np.concatenate([weights(build(4), "first"), weights(build(4), "second")])
    assert len({row.tobytes() for row in drawn}) == 8


def test_another_key_draws_other_coefficients():
    assert not np.array_equal(weights(build(4, seed=1), "first"), weights(build(4), "first"))


def test_axis_zero_of_every_coefficient_is_depth():
    assert {leaf.shape for leaf in jax.tree.leaves(build(5).coefficients)} == {(5, 3)}


def test_operators_are_frozen_in_the_order_of_the_builders():
    controls = build(4)
    frozen = controls.freeze(jax.tree.map(lambda x: x[2], controls.coefficients))
    received = np.stack([operator.vector_field(0.0, jnp.ones(3)) for operator in frozen])
    np.testing.assert_array_equal(received, [weights(controls, "first")[2], weights(controls, "second")[2]])


@pytest.mark.parametrize(("t", "index"), [(0.0, 0), (0.49, 0), (0.5, 1), (1.0, 2), (1.99, 3), (2.0, 3)])
def test_the_operators_of_a_time_are_those_of_its_interval(t, index):
    controls = build(4, horizon=2.0)
    first, _ = controls.at(t)
    np.testing.assert_allclose(first.vector_field(t, jnp.ones(3)), weights(controls, "first")[index], rtol=1e-6)


@pytest.mark.parametrize(("t", "index"), [(0.0, 0), (0.25, 1), (0.5, 2), (0.75, 3), (1.0, 3)])
def test_an_interval_is_closed_on_the_left_and_the_last_one_on_both_sides(t, index):
    basis = PiecewiseConstant(4, 1.0)
    assert int(jnp.argmax(basis.weights(t))) == index


@pytest.mark.parametrize(("num_coefficients", "horizon", "n"), [(22, 1.0, 13), (14, 0.7, 13)])
def test_the_control_at_the_start_of_a_step_is_that_of_the_step(num_coefficients, horizon, n):
    t = n * (horizon / num_coefficients)
    assert int(jnp.argmax(PiecewiseConstant(num_coefficients, horizon).weights(t))) == n


@pytest.mark.parametrize("t", [-0.1, 0.0, 0.3, 1.0, 1.1])
def test_the_weights_sum_to_one(t):
    assert float(jnp.sum(PiecewiseConstant(3, 1.0).weights(t))) == 1.0


@given(num_coefficients=st.sampled_from([1, 3, 10, 49]), horizon=st.floats(0.1, 30.0), data=st.data())
def test_the_control_of_a_step_is_that_of_its_midpoint(num_coefficients, horizon, data):
    k = data.draw(st.integers(0, num_coefficients - 1))
    basis = PiecewiseConstant(num_coefficients, horizon)
    assert int(jnp.argmax(basis.weights((k + 0.5) * horizon / num_coefficients))) == k


def test_controls_are_evaluated_in_every_leaf():
    coefficients = {"a": jnp.arange(4.0), "b": jnp.arange(8.0).reshape(4, 2)}
    received = evaluate_controls(PiecewiseConstant(4, 1.0), coefficients, 0.6)
    np.testing.assert_array_equal(received["b"], [4.0, 5.0])
    assert float(received["a"]) == 2.0


def test_the_type_of_a_coefficient_is_kept():
    received = evaluate_controls(PiecewiseConstant(4, 1.0), jnp.ones((4, 2), jnp.bfloat16), 0.6)
    assert received.dtype == jnp.bfloat16


@pytest.mark.parametrize(("knots", "steps", "expected"), [(4, 12, 3), (1, 5, 5), (5, 5, 1)])
def test_knots_share_the_steps_evenly(knots, steps, expected):
    assert PiecewiseConstant(knots, 1.0).steps_per_slice(steps) == expected


@pytest.mark.parametrize(("knots", "steps"), [(5, 12), (8, 4)])
@pytest.mark.parametrize("name", BASES)
def test_knots_that_do_not_divide_the_steps_are_refused(name, knots, steps):
    with pytest.raises(InputError, match=rf"`controls\.knots` must divide `splitting\.steps` = {steps}, got {knots}"):
        BASES[name](knots, 1.0).steps_per_slice(steps)
