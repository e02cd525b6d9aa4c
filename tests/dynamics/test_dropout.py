import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctt.dynamics import Masked, dropout_masks, mask_operator

KEYS = jax.random.split(jax.random.key(0), 4)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.75])
def test_an_entry_is_zero_or_scaled(rate):
    masks = dropout_masks(KEYS, (20, 8), rate=rate, dtype=jnp.float32)
    np.testing.assert_allclose(np.unique(masks), [0, 1 / (1 - rate)], rtol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.75])
def test_the_share_of_zeros_is_the_rate(rate):
    masks = dropout_masks(KEYS, (50, 50), rate=rate, dtype=jnp.float32)
    deviation = np.sqrt(rate * (1 - rate) / masks.size)
    assert abs(np.mean(np.asarray(masks) == 0) - rate) < 5 * deviation


def test_rate_zero_keeps_everything():
    np.testing.assert_array_equal(dropout_masks(KEYS, (5, 8), rate=0.0, dtype=jnp.float32), 1)


def test_equal_keys_draw_equal_masks():
    first, second = (dropout_masks(KEYS, (5, 8), rate=0.5, dtype=jnp.float32) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("example", range(4))
def test_a_mask_depends_on_its_own_key_alone(example):
    whole = dropout_masks(KEYS, (5, 8), rate=0.5, dtype=jnp.float32)
    alone = dropout_masks(KEYS[example : example + 1], (5, 8), rate=0.5, dtype=jnp.float32)
    np.testing.assert_array_equal(whole[example], alone[0])


def test_examples_have_different_masks():
    masks = np.asarray(dropout_masks(KEYS, (5, 8), rate=0.5, dtype=jnp.float32))
    assert len({mask.tobytes() for mask in masks}) == 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_mask_has_the_type_that_is_asked_for(dtype):
    assert dropout_masks(KEYS, (2,), rate=0.5, dtype=jnp.dtype(dtype)).dtype == dtype


def test_an_operator_of_ones_own_is_masked_at_its_field():
    class Field:
        def vector_field(self, t, u):
            return u + t

    masked = mask_operator(Field(), jnp.array([0.0, 2.0]))
    assert isinstance(masked, Masked)
    np.testing.assert_array_equal(masked.vector_field(1.0, jnp.array([3.0, 4.0])), [0.0, 10.0])
