from dataclasses import replace

import numpy as np
import pytest

from ctt.config.error import InputError
from ctt.config.schema import DataConfig
from ctt.data import load_dataset

CONFIG = DataConfig(name="digits", image_shape=(8, 8, 1), num_classes=10, val_size=180)


@pytest.mark.parametrize(("split", "size"), [("train", 1257), ("val", 180), ("test", 360)])
def test_digits_splits_have_the_stated_sizes(split, size):
    data = load_dataset(CONFIG).split(split)
    assert data.images.shape == (size, 8, 8, 1)
    assert data.images.dtype == np.uint8
    assert data.labels.shape == (size,)
    assert data.labels.dtype == np.int32


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_digits_classes_keep_their_share_in_every_split(split):
    data = load_dataset(CONFIG)
    counts = np.bincount(data.split(split).labels, minlength=10)
    whole = sum(np.bincount(data.split(name).labels, minlength=10) for name in ("train", "val", "test"))
    np.testing.assert_allclose(counts, whole * counts.sum() / 1797, atol=1.5)


def test_digits_pixels_fill_the_range_of_uint8():
    images = load_dataset(CONFIG).train.images
    assert set(np.unique(images)) == {int(np.rint(value * 255 / 16)) for value in range(17)}


def test_digits_splits_together_are_the_source():
    from sklearn.datasets import load_digits

    data = load_dataset(CONFIG)
    loaded = np.concatenate([data.split(name).images for name in ("train", "val", "test")]).reshape(-1, 64)
    source = np.rint(load_digits().data * 255 / 16).astype(np.uint8)
    assert sorted(map(bytes, loaded)) == sorted(map(bytes, source))


def test_digits_split_seed_changes_validation_but_neither_test_nor_fingerprint():
    first, second = load_dataset(CONFIG), load_dataset(replace(CONFIG, split_seed=1))
    np.testing.assert_array_equal(first.test.images, second.test.images)
    assert first.fingerprint == second.fingerprint
    assert not np.array_equal(first.val.images, second.val.images)


def test_loading_ignores_the_global_random_state():
    np.random.seed(1)  # noqa: NPY002 - the legacy global state is what is tested.
    first = load_dataset(CONFIG)
    np.random.seed(2)  # noqa: NPY002
    second = load_dataset(CONFIG)
    np.testing.assert_array_equal(first.val.images, second.val.images)


def test_digits_are_resized_to_a_model_of_another_shape():
    data = load_dataset(replace(CONFIG, image_shape=(16, 12, 3)))
    assert data.test.images.shape == (360, 16, 12, 3)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_classes": 11}, r"`data.num_classes` must be 10, .* got 11"),
        ({"val_size": 1437}, r"`data.val_size` must be >= 1 and < 1437, .* got 1437"),
        ({"val_size": None}, r"`data.val_size` must be known, got None"),
        ({"image_shape": None}, r"`data.image_shape` must be known, got None"),
        ({"image_shape": (8, 8, 2)}, r"`data.image_shape` must have 1 or 3 channels, got 2"),
    ],
)
def test_a_config_that_does_not_fit_digits_is_refused(change, match):
    with pytest.raises(InputError, match=match):
        load_dataset(replace(CONFIG, **change))


def test_an_unknown_split_name_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean `train`"):
        load_dataset(CONFIG).split("training")
