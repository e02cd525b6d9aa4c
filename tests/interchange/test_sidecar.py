"""What lies beside the weights: how pixels are normalised, the size of an image, the names of classes."""

import numpy as np
import pytest

from ctt.config import InputError
from ctt.interchange.sidecar import read_class_names, read_image_size, read_statistics

DEFAULT = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


@pytest.mark.parametrize(
    ("preprocessor", "factor", "mean", "std"),
    [
        ({}, 1 / 255, *DEFAULT),
        ({"image_mean": [0.5] * 3, "image_std": [0.25] * 3}, 1 / 255, (0.5,) * 3, (0.25,) * 3),
        ({"rescale_factor": 1 / 127.5}, 1 / 127.5, *DEFAULT),
        ({"rescale_factor": 1 / 127.5, "do_rescale": False}, 1, *DEFAULT),
        ({"image_mean": [0.5] * 3, "do_normalize": False}, 1 / 255, (0,) * 3, (1,) * 3),
        ({"do_normalize": False, "do_rescale": False}, 1, (0,) * 3, (1,) * 3),
    ],
)
def test_statistics_make_what_the_preprocessor_makes(preprocessor, factor, mean, std):
    pixels = np.arange(0, 256, 5)[:, None] * np.ones(3)
    received_mean, received_std = read_statistics({}, preprocessor, DEFAULT)
    received = (pixels / 255 - received_mean) / received_std
    np.testing.assert_allclose(received, (factor * pixels - mean) / std, rtol=1e-12, atol=1e-12)


def test_what_timm_keeps_in_its_config_is_read():
    config = {"pretrained_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    assert read_statistics(config, {}, DEFAULT) == ((0.5,) * 3, (0.25,) * 3)


@pytest.mark.parametrize(
    "preprocessor",
    [{"image_mean": 0.5}, {"image_std": ["a"]}, {"rescale_factor": 0}, {"rescale_factor": "x"}, {"do_rescale": 1}],
)
def test_statistics_that_are_no_numbers_are_refused(preprocessor):
    with pytest.raises(InputError, match=r"must be numbers|cannot be used"):
        read_statistics({}, preprocessor, DEFAULT)


@pytest.mark.parametrize(
    ("preprocessor", "size"),
    [
        ({}, (224, 224)),
        ({"size": 384}, (384, 384)),
        ({"size": {"height": 32, "width": 48}}, (32, 48)),
        ({"size": {"shortest_edge": 256}}, (256, 256)),
        ({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 24, "width": 32}}, (24, 32)),
        ({"size": {"shortest_edge": 256}, "do_center_crop": False, "crop_size": 24}, (256, 256)),
    ],
)
def test_the_image_size_is_that_of_the_preprocessor(preprocessor, size):
    assert read_image_size(preprocessor) == size


@pytest.mark.parametrize("size", ["224", [224, 224], {"height": "a"}, 2.5])
def test_another_image_size_is_refused(size):
    with pytest.raises(InputError, match="cannot be used"):
        read_image_size({"size": size})


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, ("0", "1")),
        ({"id2label": {"0": "cat", "1": "dog"}}, ("cat", "dog")),
        ({"id2label": {"1": "dog", "0": "cat"}}, ("cat", "dog")),
        ({"id2label": {"0": "cat", "1": "dog", "2": "cow"}}, ("0", "1")),
        ({"id2label": {"a": "cat", "b": "dog"}}, ("0", "1")),
        ({"id2label": 3}, ("0", "1")),
        ({"label_names": ["cat", "dog"]}, ("cat", "dog")),
    ],
)
def test_class_names_are_read_where_there_is_one_a_class(config, names):
    assert read_class_names(config, 2) == names
