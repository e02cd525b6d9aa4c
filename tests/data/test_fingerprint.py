import hashlib

import numpy as np
import pytest

from ctt.data.dataset import Split
from ctt.data.fingerprint import compute_fingerprint


def make_split(*, shape=(4, 2, 2, 1), images_dtype=np.uint8, labels_dtype=np.int32):
    images = np.arange(np.prod(shape)).reshape(shape).astype(images_dtype)
    return Split(images, np.arange(shape[0]).astype(labels_dtype))


def change_one(array):
    changed = array.copy()
    changed.flat[-1] += 1
    return changed


SPLIT = make_split()


def test_fingerprint_hashes_exactly_what_is_documented():
    expected = hashlib.sha256()
    expected.update(b"|u1 (4, 2, 2, 1)\n" + SPLIT.images.tobytes())
    expected.update(b"<i4 (4,)\n" + SPLIT.labels.astype("<i4").tobytes())
    assert compute_fingerprint([SPLIT]) == expected.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        Split(change_one(SPLIT.images), SPLIT.labels),
        Split(SPLIT.images, change_one(SPLIT.labels)),
        make_split(shape=(4, 4, 1, 1)),
        make_split(images_dtype=np.uint16),
        make_split(labels_dtype=np.int64),
        SPLIT.select(np.array([1, 0, 2, 3])),
    ],
    ids=["pixel", "label", "shape", "image dtype", "label dtype", "order"],
)
def test_fingerprint_changes_with(other):
    assert compute_fingerprint([other]) != compute_fingerprint([SPLIT])


def test_fingerprint_tells_train_from_test():
    other = make_split(shape=(3, 2, 2, 1))
    assert compute_fingerprint([SPLIT, other]) != compute_fingerprint([other, SPLIT])


def test_fingerprint_does_not_depend_on_memory_layout():
    strided = Split(np.asfortranarray(SPLIT.images), SPLIT.labels)
    assert compute_fingerprint([strided]) == compute_fingerprint([SPLIT])
