import logging

import numpy as np
import pytest

from ctt.config.error import InputError
from ctt.data.holdout import hold_out

LABELS = np.repeat(np.arange(5), [100, 50, 30, 10, 10]).astype(np.int32)


def test_kept_and_held_are_sorted_and_cover_every_index_once():
    kept, held = hold_out(LABELS, 40, seed=0)
    assert (len(kept), len(held)) == (160, 40)
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), np.arange(200))


def test_held_out_classes_keep_their_share():
    _, held = hold_out(LABELS, 40, seed=0)
    np.testing.assert_array_equal(np.bincount(LABELS[held]), [20, 10, 6, 2, 2])


def test_same_seed_gives_the_same_split():
    np.testing.assert_array_equal(hold_out(LABELS, 40, seed=3)[1], hold_out(LABELS, 40, seed=3)[1])


def test_another_seed_gives_another_split():
    assert not np.array_equal(hold_out(LABELS, 40, seed=3)[1], hold_out(LABELS, 40, seed=4)[1])


@pytest.mark.parametrize("size", [-1, 0, 200, 201])
def test_an_empty_or_oversize_split_is_refused(size):
    with pytest.raises(InputError, match=rf"`data.val_size` must be >= 1 and < 200, .* got {size}\. .*--data.val_size"):
        hold_out(LABELS, size, seed=0)


@pytest.mark.parametrize(
    ("labels", "size", "reason"),
    [
        (np.array([0] * 9 + [1]), 4, "class 1 has a single example"),
        (np.arange(10) // 2, 3, "5 classes do not fit into 3 examples"),
        (np.arange(10) // 2, 7, "5 classes do not fit into 3 examples"),
    ],
)
def test_classes_too_small_are_drawn_without_regard_to_class_and_the_log_says_why(labels, size, reason, caplog):
    with caplog.at_level(logging.WARNING):
        kept, held = hold_out(labels, size, seed=0)
    assert len(held) == size
    assert len(kept) == 10 - size
    assert reason in caplog.text
