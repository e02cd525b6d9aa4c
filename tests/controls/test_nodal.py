"""Controls at the nodes of the grid, modules that operators share, and operators without weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.controls import Controls, PiecewiseConstant
from ctt.controls.stack import list_names, merge_by_name, split_by_name

COUNT, HORIZON = 4, 2.0


class Scale(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jax.random.normal(rngs.params(), (3,)))

    def vector_field(self, t, u):
        return self.weight[...] * u


class Still:
    """A class of nobody's, without weights."""

    def vector_field(self, t, u):
        return jnp.full_like(u, 7.0)


def build_scales(rngs):
    return {"outer": Scale(rngs), "inner": Scale(rngs)}


def build(build_operators=build_scales, *, nodal=(), count=COUNT, seed=0):
    return Controls(build_operators, PiecewiseConstant(count, HORIZON), key=jax.random.key(seed), nodal=nodal)


def weights(controls, name):
    return np.asarray(controls.operators[name].weight[...])


def test_a_nodal_operator_has_one_coefficient_more():
    controls = build(nodal=("outer",))
    assert weights(controls, "outer").shape == (COUNT + 1, 3)
    assert weights(controls, "inner").shape == (COUNT, 3)


def test_all_operators_may_be_nodal():
    controls = build(nodal=("outer", "inner"))
    assert {weights(controls, name).shape[0] for name in controls.names} == {COUNT + 1}


@pytest.mark.parametrize("name", ["outer", "inner"])
def test_a_coefficient_depends_on_the_key_and_its_number_alone(name):
    nodal, plain, longer = build(nodal=("outer",)), build(), build(count=COUNT + 3)
    count = weights(nodal, name).shape[0]
    np.testing.assert_array_equal(weights(nodal, name)[:COUNT], weights(plain, name))
    np.testing.assert_array_equal(weights(nodal, name), weights(longer, name)[:count])


def test_another_key_draws_other_coefficients():
    first, second = (weights(build(nodal=("outer",), seed=seed), "outer") for seed in (0, 1))
    assert not np.any(first == second)


# The nodes are at 0, 0.5, 1, 1.5 and 2: a coefficient holds from half a step before to half a step after.
@pytest.mark.parametrize(
    ("t", "node"), [(0.0, 0), (0.24, 0), (0.26, 1), (0.5, 1), (0.74, 1), (0.76, 2), (1.5, 3), (1.76, 4), (2.0, 4)]
)
def test_a_nodal_control_is_that_of_the_nearest_node(t, node):
    controls = build(nodal=("outer",))
    outer, _ = controls.at(t)
    np.testing.assert_array_equal(outer.vector_field(t, jnp.ones(3)), weights(controls, "outer")[node])


@pytest.mark.parametrize(("t", "interval"), [(0.0, 0), (0.26, 0), (0.5, 1), (1.24, 2), (2.0, 3)])
def test_beside_a_nodal_operator_the_others_keep_their_intervals(t, interval):
    controls = build(nodal=("outer",))
    _, inner = controls.at(t)
    np.testing.assert_array_equal(inner.vector_field(t, jnp.ones(3)), weights(controls, "inner")[interval])


def test_a_traced_time_looks_up_the_same_node():
    controls = build(nodal=("outer",))
    received = jax.vmap(lambda t: controls.at(t)[0].vector_field(t, jnp.ones(3)))(jnp.array([0.1, 1.1, 1.9]))
    np.testing.assert_array_equal(received, weights(controls, "outer")[[0, 2, 4]])


def test_coefficients_are_split_by_name_and_merged_again():
    coefficients = build(nodal=("outer",)).coefficients
    outer, others = split_by_name(coefficients, ("outer",))
    assert (list(outer), list(others)) == (["outer"], ["inner"])
    merged, expected = (dict(nnx.to_flat_state(part)) for part in (merge_by_name(others, outer), coefficients))
    assert merged.keys() == expected.keys()
    assert all(np.array_equal(merged[path][...], expected[path][...]) for path in expected)


@pytest.mark.parametrize("names", [(), ("outer", "inner")])
def test_a_split_may_leave_one_side_empty(names):
    inside, outside = split_by_name(build().coefficients, names)
    assert (len(jax.tree.leaves(inside)), len(jax.tree.leaves(outside))) == (len(names), 2 - len(names))


def test_the_order_of_the_operators_is_that_of_the_builder():
    controls = build(lambda rngs: {"zeta": Scale(rngs), "alpha": Still(), "mid": Scale(rngs)})
    assert controls.names == ("zeta", "alpha", "mid")
    zeta, alpha, mid = controls.at(0.6)
    np.testing.assert_array_equal(zeta.vector_field(0.0, jnp.ones(3)), weights(controls, "zeta")[1])
    np.testing.assert_array_equal(mid.vector_field(0.0, jnp.ones(3)), weights(controls, "mid")[1])
    assert isinstance(alpha, Still)


def test_names_are_listed_without_drawing_weights():
    def build_operators(rngs):
        assert isinstance(rngs.params(), jax.core.Tracer)
        return {"second": Still(), "first": Scale(rngs)}

    assert list_names(build_operators) == ("second", "first")


def test_operators_without_weights_are_controls_too():
    controls = build(lambda rngs: {"still": Still(), "other": Still()}, nodal=("still",))
    assert not jax.tree.leaves(controls.coefficients)
    still, other = controls.at(1.0)
    assert still is not other
    np.testing.assert_array_equal(still.vector_field(0.0, jnp.ones(3)), 7)


class Through(nnx.Module):
    """An operator around a module that it may share with another one."""

    def __init__(self, part, factor):
        self.part, self.factor = part, factor

    def vector_field(self, t, u):
        return self.factor * self.part.vector_field(t, u)


def build_shared(rngs):
    part = Scale(rngs)
    return {"first": Through(part, 2.0), "second": Through(part, 3.0)}


def build_separate(rngs):
    return {"first": Through(Scale(rngs), 2.0), "second": Through(Scale(rngs), 3.0)}


def test_a_module_that_two_operators_share_is_one_control():
    controls = build(build_shared)
    assert [leaf.shape for leaf in jax.tree.leaves(controls.coefficients)] == [(COUNT, 3)]
    first, second = controls.at(0.0)
    assert first.part is second.part
    assert len(jax.tree.leaves(build(build_separate).coefficients)) == 2


def differentiate(controls, coefficients):
    """The gradient of a number that both operators decide, in the coefficients."""

    def loss(coefficients):
        first, second = controls.freeze(jax.tree.map(lambda x: x[1], coefficients))
        u = jnp.array([1.0, -2.0, 0.5])
        return jnp.sum(second.vector_field(0.0, jnp.sin(first.vector_field(0.0, u))))

    return jax.grad(loss)(coefficients)


def test_the_gradient_of_a_shared_control_is_the_sum_over_its_operators():
    shared, separate = build(build_shared), build(build_separate)
    (value,) = jax.tree.leaves(shared.coefficients)
    total = differentiate(shared, shared.coefficients)
    parts = differentiate(separate, jax.tree.map(lambda x: value, separate.coefficients))
    first, second = jax.tree.leaves(parts)
    np.testing.assert_allclose(jax.tree.leaves(total)[0], first + second, rtol=1e-6)
    assert np.abs(first[1]).min() > 0
    assert np.abs(second[1]).min() > 0
