"""The weights of one model in another: copied, interpolated or drawn anew, and said so; or refused with both shapes."""

import dataclasses

import numpy as np
import pytest

from ctt.config import InputError
from ctt.interchange import transplant
from ctt.interchange.positions import interpolate_positions


def test_the_same_config_takes_every_weight(build_vit, assert_same_state):
    config, model = build_vit()
    received, notes = transplant(config, model, dataclasses.replace(config, seed=7))
    assert notes == []
    assert received is not model
    assert_same_state(received, model)


def test_another_scheme_takes_every_weight(build_vit, assert_same_state):
    config, model = build_vit()
    other, _ = build_vit({"splitting.scheme": "strang", "splitting.substep": "midpoint", "splitting.horizon": 1.0})
    received, notes = transplant(config, model, other)
    assert notes == []
    assert_same_state(received, model)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize(("shape", "grid"), [((16, 12, 1), (4, 3)), ((4, 16, 1), (1, 4))])
def test_positions_are_interpolated_to_another_mesh(build_vit, pooling, shape, grid):
    config, model = build_vit({"model.pooling": pooling})
    other, _ = build_vit({"model.pooling": pooling, "data.image_shape": shape})
    received, notes = transplant(config, model, other)
    num_prefix = int(pooling == "cls")
    expected = interpolate_positions(model.lift.positions[...], (2, 2), grid, num_prefix_tokens=num_prefix)
    np.testing.assert_array_equal(received.lift.positions[...], expected)
    assert notes == [f"Position embeddings were interpolated from 2 x 2 to {grid[0]} x {grid[1]} patches."]
    assert received(np.zeros((2, *shape), np.uint8)).shape == (2, 10)


def test_other_classes_give_a_new_read_out(build_vit):
    config, model = build_vit()
    other, _ = build_vit({"data.num_classes": 4})
    received, notes = transplant(config, model, other)
    assert notes == ["The read-out was drawn anew for 4 classes in place of 10."]
    assert received.read_out.kernel.shape == (8, 4)
    np.testing.assert_array_equal(received.lift.positions[...], model.lift.positions[...])
    again, _ = transplant(config, model, other)
    np.testing.assert_array_equal(received.read_out.kernel[...], again.read_out.kernel[...])
    reseeded, _ = transplant(config, model, dataclasses.replace(other, seed=1))
    before, after = (np.asarray(m.read_out.kernel[...]) for m in (received, reseeded))
    assert (before != after).any()


def test_a_cvt_takes_another_image_and_its_averages(build_cvt, assert_same_state):
    config, model = build_cvt()
    other, _ = build_cvt({"data.image_shape": (16, 16, 3)})
    received, notes = transplant(config, model, other)
    assert notes == []
    assert_same_state(received, model)


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        ({"model.width": 12, "data.num_classes": 4}, r"which is \[3, .*8.*\] in the run"),
        ({"model.width": 12}, r"must agree in evolution\.\S+, which is \[3, .*8.*\] in the run and \[3, .*12.*\] in"),
        ({"model.feedforward_width": 20}, r"feedforward\.operator\.\S+, which is \[3, \d+.*\] in the run and \[3, "),
        ({"splitting.steps": 4}, r"which is \[3, 8\] in the run and \[4, 8\] in the config"),
        ({"controls.knots": 1}, r"which is \[3, 8\] in the run and \[1, 8\] in the config"),
        ({"model.patch_size": 2}, r"lift\.linear\.kernel, which is \[16, 8\] in the run and \[4, 8\] in the config"),
        ({"model.pooling": "mean"}, r"lift\.class_token is one that the run has and the config has not"),
        ({"model.position": "sincos"}, r"lift\.positions is one that the run has and the config has not"),
        ({"model.operators": ("attention", "feedforward", "heat")}, r"heat\S+ is one that the config has and the run"),
        ({"normalization.affine": "none"}, "is one that the run has and the config has not"),
        ({"data.image_shape": (8, 8, 3), "data.mean": (0.5,) * 3, "data.std": (0.5,) * 3}, r"lift\.linear\.kernel"),
        ({"model.num_heads": 4}, "must agree in `model.num_heads`, which is 2 in the run and 4 in the config"),
    ],
)
def test_what_does_not_fit_is_named(build_vit, overrides, match):
    config, model = build_vit()
    other, _ = build_vit(overrides)
    with pytest.raises(InputError, match=match):
        transplant(config, model, other)


@pytest.mark.parametrize(
    ("field", "value", "before"),
    [
        ("model.activation", "relu", "gelu"),
        ("normalization.eps", 1e-3, "1e-06"),
        ("normalization.placement", "post", "pre"),
        ("data.mean", (0.7,), r"(0.3,)"),
    ],
)
def test_the_same_weights_read_otherwise_are_said(build_vit, field, value, before):
    config, model = build_vit()
    other, _ = build_vit({field: value})
    notes = transplant(config, model, other)[1]
    assert notes == [f"The same weights with another `{field}`: {before} in the run, {value} in the config."]
