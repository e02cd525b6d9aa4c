import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctt.config.error import InputError
from ctt.data import batch_indices, padded_batches, steps_per_epoch
from ctt.data.sampler import _permute

SIZES = {"num_examples": 50, "batch_size": 8}


def draw(steps, *, seed=0):
    return {step: batch_indices(seed, step, **SIZES).tolist() for step in steps}


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_an_epoch_visits_each_example_at_most_once(epoch):
    visited = [index for batch in draw(range(6 * epoch, 6 * epoch + 6)).values() for index in batch]
    assert len(visited) == len(set(visited)) == 48
    assert set(visited) <= set(range(50))


def test_the_examples_left_out_differ_between_epochs():
    left_out = [set(range(50)).difference(*draw(range(6 * epoch, 6 * epoch + 6)).values()) for epoch in range(4)]
    assert len({frozenset(examples) for examples in left_out}) > 1


def test_batches_do_not_depend_on_the_order_of_calls():
    forward = draw(range(40))
    _permute.cache_clear()
    assert draw(reversed(range(40))) == forward


def test_a_resumed_run_sees_the_same_batches():
    whole = draw(range(20))
    _permute.cache_clear()
    assert draw(range(13, 20)) == {step: whole[step] for step in range(13, 20)}


@pytest.mark.parametrize("seed", [1, 2**31, 2**32 - 1])
def test_another_seed_gives_other_batches(seed):
    assert draw(range(6), seed=seed) != draw(range(6), seed=0)


def test_epochs_have_different_permutations():
    assert list(draw(range(6)).values()) != list(draw(range(6, 12)).values())


def test_batches_do_not_depend_on_the_precision_of_jax():
    expected = draw(range(12))
    _permute.cache_clear()
    with jax.enable_x64(True):
        assert draw(range(12)) == expected


def test_indices_are_int32_and_cannot_be_overwritten():
    indices = batch_indices(0, 0, **SIZES)
    assert indices.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        indices[0] = 1


def test_batches_are_pinned():
    # A changed sequence breaks the resumption of every checkpoint already written.
    assert batch_indices(0, 0, num_examples=10, batch_size=5).tolist() == [1, 6, 0, 4, 2]


@pytest.mark.parametrize(("num_examples", "batch_size", "steps"), [(50, 8, 6), (48, 8, 6), (8, 8, 1), (5, 1, 5)])
def test_steps_per_epoch_counts_full_batches(num_examples, batch_size, steps):
    assert steps_per_epoch(num_examples, batch_size) == steps


@pytest.mark.parametrize("batch_size", [0, 51])
def test_a_batch_that_does_not_fit_the_training_split_is_refused(batch_size):
    with pytest.raises(InputError, match=rf"`training.batch_size` must be >= 1 and <= 50, .* got {batch_size}\."):
        steps_per_epoch(50, batch_size)


@settings(deadline=None, max_examples=30)
@given(num_examples=st.integers(1, 60), batch_size=st.integers(1, 70))
def test_padded_batches_weigh_every_example_once_in_order(num_examples, batch_size):
    batches = list(padded_batches(num_examples, batch_size))
    assert {indices.shape for indices, _ in batches} == {weights.shape for _, weights in batches} == {(batch_size,)}
    indices, weights = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert indices[weights == 1].tolist() == list(range(num_examples))
    assert set(weights) <= {0.0, 1.0}
    assert (indices < num_examples).all()
