import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config.name import PLACEMENTS as PLACEMENT_NAMES
from ctt.dynamics import (
    PLACEMENTS,
    Constrained,
    Masked,
    Normalization,
    Operator,
    PostNormalized,
    PreNormalized,
    Projection,
)
from ctt.dynamics.operator import find_flow, flow_order, is_bolted_on, is_reversible
from ctt.dynamics.placement import TangentNormalized, place_operator
from ctt.splitting import build_scheme, build_substeps, split_step

U = np.array([1.0, 2.0, -4.0])


class Double:
    def vector_field(self, t, u):
        return 2 * u


class AddTen:
    """Stands for a normalisation: easy to tell where it acted."""

    def project(self, t, u):
        return u + 10


def take_substep(operator, substep="euler", dt=0.5, u=U):
    scheme, method = build_scheme("lie", 1), build_substeps(substep, 1)
    return split_step(scheme, method, operators=[operator], u=jnp.asarray(u), t=0.0, dt=dt)


def test_pre_normalises_inside_the_field():
    np.testing.assert_allclose(take_substep(PreNormalized(Double(), AddTen())), U + 0.5 * 2 * (U + 10))


def test_post_normalises_after_the_substep():
    np.testing.assert_allclose(take_substep(PostNormalized(Double(), AddTen())), U + 0.5 * 2 * U + 10)


def test_pre_normalises_at_every_stage():
    middle = U + 0.25 * 2 * (U + 10)
    received = take_substep(PreNormalized(Double(), AddTen()), "midpoint")
    np.testing.assert_allclose(received, U + 0.5 * 2 * (middle + 10))


def test_post_normalises_once_a_substep():
    middle = U + 0.25 * 2 * U
    received = take_substep(PostNormalized(Double(), AddTen()), "midpoint")
    np.testing.assert_allclose(received, U + 0.5 * 2 * middle + 10)


def test_post_is_a_constraint():
    assert isinstance(PostNormalized(Double(), AddTen()), Constrained)


def test_pre_is_no_constraint():
    assert not isinstance(PreNormalized(Double(), AddTen()), Constrained)


@pytest.mark.parametrize("placement", [PreNormalized, PostNormalized])
def test_a_placed_operator_is_no_projection(placement):
    assert not isinstance(placement(Double(), AddTen()), Projection)


@pytest.mark.parametrize("placement", [PreNormalized, PostNormalized])
def test_a_masked_placement_is_of_the_same_kind(placement):
    assert isinstance(placement(Double(), AddTen()).masked(jnp.ones(3)), placement)


def test_a_mask_multiplies_the_field_and_not_the_normalised_state():
    mask = jnp.array([0.0, 1.0, 2.0])
    field = PreNormalized(Double(), AddTen()).masked(mask).vector_field(0.0, jnp.asarray(U))
    np.testing.assert_allclose(field, mask * 2 * (U + 10))


def test_a_masked_constraint_still_ends_on_its_set():
    masked = PostNormalized(Double(), AddTen()).masked(jnp.zeros(3))
    np.testing.assert_allclose(take_substep(masked), U + 10)


def test_a_masked_operator_is_an_operator():
    assert isinstance(Masked(Double(), jnp.ones(3)), Operator)


class Grow(Double):
    """The field ``2 u`` with its own flow, said to be of order 2 and to run forwards alone."""

    flow_order = 2
    is_reversible = False

    def flow(self, u, t0, t1):
        return u * jnp.exp(2 * (t1 - t0))


def test_placements_are_those_that_the_command_line_offers():
    assert tuple(PLACEMENTS) == PLACEMENT_NAMES


def test_pre_leaves_an_operator_with_a_flow_of_its_own_as_it_is():
    operator = Grow()
    assert place_operator("pre", operator, AddTen()) is operator


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_operator_without_a_flow_is_placed_as_its_name_says(placement):
    assert type(place_operator(placement, Double(), AddTen())) is PLACEMENTS[placement]


@pytest.mark.parametrize("placement", ["post", "tangent"])
def test_a_constraint_is_placed_around_an_operator_with_a_flow_too(placement):
    assert type(place_operator(placement, Grow(), AddTen())) is PLACEMENTS[placement]


def test_post_normalises_after_the_own_flow_of_an_operator():
    received = take_substep(PostNormalized(Grow(), AddTen()), "exact")
    np.testing.assert_allclose(received, U * np.exp(2 * 0.5) + 10, rtol=1e-6)


def test_post_has_a_flow_where_its_operator_has_one():
    assert find_flow(PostNormalized(Grow(), AddTen())) is not None
    assert find_flow(PostNormalized(Double(), AddTen())) is None


@pytest.mark.parametrize("placement", [PreNormalized, TangentNormalized])
def test_a_normalised_field_has_no_flow(placement):
    # The flow of f(P(u)) is not that of f.
    assert find_flow(placement(Grow(), AddTen())) is None


def test_the_flow_of_post_has_the_order_of_its_operators():
    assert flow_order(PostNormalized(Grow(), AddTen())) == 2
    assert flow_order(PostNormalized(Double(), AddTen())) == math.inf


@pytest.mark.parametrize("placement", [PostNormalized, TangentNormalized])
def test_a_placed_operator_flows_backwards_where_the_operator_does(placement):
    assert is_reversible(placement(Double(), AddTen()))
    assert not is_reversible(placement(Grow(), AddTen()))


@pytest.mark.parametrize(("placement", "expected"), [("pre", False), ("post", True), ("tangent", False)])
def test_post_alone_is_a_projection_bolted_on(placement, expected):
    assert is_bolted_on(PLACEMENTS[placement](Double(), AddTen())) is expected


class Mix(nnx.Module):
    """A field that moves a token off the constants."""

    def __init__(self, width):
        self.kernel = nnx.Param(jnp.asarray(np.random.default_rng(0).standard_normal((width, width)), jnp.float32))

    def vector_field(self, t, u):
        return u @ self.kernel[...].astype(u.dtype)


KINDS = [
    (placement, constraint, affine)
    for placement in PLACEMENTS
    for constraint in ("s1", "sphere")
    for affine in ("none", "scalar", "elementwise")
    if (placement, affine) != ("tangent", "elementwise")  # No set whose tangent could be meant: refused.
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("placement", "constraint", "affine"), KINDS)
def test_constant_tokens_give_finite_values_and_gradients(fast_compilation, placement, constraint, affine, dtype):
    norm = Normalization(6, affine=affine, eps=1e-6, constraint=constraint, param_dtype=jnp.float32, rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(place_operator(placement, Mix(6), norm))
    tokens = jnp.asarray(np.repeat([[0.0], [3.0], [-200.0]], 6, axis=1), dtype)

    def loss(state, u):
        u = take_substep(nnx.merge(graphdef, state), "midpoint", u=u)
        return jnp.sum(u[..., 0].astype(jnp.float32)), u

    run = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True), compiler_options=fast_compilation)
    gradients, u = run(state, tokens)
    assert u.dtype == dtype
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((gradients, u)))
