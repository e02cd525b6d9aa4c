import jax.numpy as jnp
import numpy as np
import pytest

from ctt.dynamics import Constrained, Masked, Operator, PostNormalized, PreNormalized, Projection
from ctt.splitting import build_scheme, build_substep, split_step

U = np.array([1.0, 2.0, -4.0])


class Double:
    def vector_field(self, t, u):
        return 2 * u


class AddTen:
    """Stands for a normalisation: easy to tell where it acted."""

    def project(self, t, u):
        return u + 10


def take_substep(operator, substep="euler", dt=0.5):
    scheme, method = build_scheme("lie", 1), build_substep(substep)
    return split_step(scheme, method, operators=[operator], u=jnp.asarray(U), t=0.0, dt=dt)


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
