"""Small models as the files of other libraries, made without any of them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from flax import nnx

from ctt.config import StagesConfig
from ctt.interchange import export_weights
from ctt.models import build_model

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from tiny_run import _signal_handlers, compilation_cache

__all__ = ["_signal_handlers", "compilation_cache"]

VIT = {
    "data.image_shape": (8, 8, 1),
    "data.num_classes": 10,
    "model.width": 8,
    "model.patch_size": 4,
    "model.pooling": "cls",
    "normalization.eps": 1e-6,
    "splitting.steps": 3,
}
CVT = {
    "data.image_shape": (8, 12, 3),
    "data.mean": (0.1, 0.2, 0.3),
    "data.std": (0.4, 0.5, 0.6),
    "model.name": "cvt",
    "model.width": 64,  # The fields of one stage are left alone.
    "model.num_heads": 4,
    "model.feedforward_width": 128,
    "model.pooling": "cls",
    "model.score_scale": "width",
    "model.convolution_normalization": "batch",
    "normalization.eps": 1e-5,
    "splitting.steps": None,
    "model.stages": StagesConfig(
        widths=(4, 8),
        num_heads=(1, 2),
        feedforward_widths=(8, 12),
        steps=(1, 2),
        kernels=(3, 3),
        strides=(2, 2),
        paddings=(1, 1),
        projection_kernels=(3, 3),
        key_value_strides=(2, 1),
        key_value_paddings=(1, 1),
    ),
}


@pytest.fixture
def build_vit(tiny_config, draw_weights):
    """Return a maker of a resolved config and a ViT with random weights."""

    def build(overrides=None):
        config = tiny_config({**VIT, **(overrides or {})})
        return config, draw_weights(lambda: build_model(config))

    return build


@pytest.fixture
def build_cvt(tiny_config, draw_weights):
    """Return a maker of a resolved config and a CvT with random weights."""

    def build(overrides=None):
        config = tiny_config({**CVT, **(overrides or {})})
        return config, draw_weights(lambda: build_model(config))

    return build


@pytest.fixture
def vit_folder(build_vit, tmp_path):
    """Return a maker of a folder of weights in one of the formats."""

    def make(file_format="huggingface", overrides=None, name="theirs"):
        config, model = build_vit(overrides)
        return export_weights(config, model, file_format, tmp_path / name)

    return make


@pytest.fixture
def cvt_folder(build_cvt, tmp_path):
    """Return a maker of a folder with a CvT."""

    def make(overrides=None):
        config, model = build_cvt(overrides)
        return export_weights(config, model, "huggingface", tmp_path / "theirs")

    return make


@pytest.fixture
def edit_json():
    """Return a function that changes the fields of a JSON file; None takes a field away."""

    def edit(path, changes):
        values = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))

    return edit


@pytest.fixture
def edit_tensors():
    """Return a function that changes the tensors of a folder; None takes a tensor away."""
    from safetensors.numpy import load_file, save_file

    def edit(folder, changes):
        path = folder / "model.safetensors"
        tensors = load_file(path) | changes
        tensors = {name: tensor.copy(order="C") for name, tensor in tensors.items() if tensor is not None}
        save_file(tensors, path)

    return edit


@pytest.fixture
def assert_same_state():
    """Return a function that asserts that two modules have the same weights, bit for bit."""

    def check(received, expected):
        states = [
            dict(nnx.to_flat_state(nnx.state(module, (nnx.Param, nnx.BatchStat)))) for module in (received, expected)
        ]
        assert states[0].keys() == states[1].keys()
        for path, leaf in states[1].items():
            np.testing.assert_array_equal(states[0][path][...], leaf[...], err_msg=str(path))

    return check
