"""The correspondence of parameters: each transform against its definition, and its inverse."""

import numpy as np
import pytest

from ctt.config import InputError
from ctt.interchange.layout import (
    CONVOLUTION,
    LINEAR,
    SAME,
    Axes,
    Depthwise,
    Entry,
    Fused,
    Patches,
    linear,
    to_state,
    to_tensors,
)
from ctt.models.lift import cut_patches

TRANSFORMS = {
    "same": (SAME, (3,)),
    "linear": (LINEAR, (3, 4)),
    "convolution": (CONVOLUTION, (5, 2, 3, 4)),
    "class token": (Axes(leading=2), (1, 1, 4)),
    "positions": (Axes(leading=1), (1, 5, 4)),
    "patches": (Patches(3), (5, 2, 3, 3)),
    "depthwise": (Depthwise(), (4, 1, 3, 2)),
    "fused": (Fused(3, LINEAR), (12, 4)),
    "fused bias": (Fused(3, SAME), (12,)),
}


def draw(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("transform", "shape"), TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_a_transform_is_inverted_exactly(transform, shape):
    tensor = draw(shape)
    back = transform.to_theirs(transform.to_ours(tensor))
    assert back.shape == tensor.shape
    np.testing.assert_array_equal(back, tensor)


def test_patches_are_a_convolution_whose_stride_is_its_side():
    kernel, image = draw((5, 2, 3, 3)), draw((6, 9, 2), seed=1)
    (ours,) = Patches(3).to_ours(kernel)
    received = np.asarray(cut_patches(image[None], 3))[0] @ ours
    tiles = [image[r : r + 3, c : c + 3] for r in (0, 3) for c in (0, 3, 6)]
    expected = [[np.sum(tile.transpose(2, 0, 1) * kernel[n]) for n in range(5)] for tile in tiles]
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)


def test_a_fused_tensor_is_query_then_key_then_value():
    tensor = draw((6, 4))
    query, key, value = Fused(3, LINEAR).to_ours(tensor)
    for part, expected in zip((query, key, value), (tensor[:2], tensor[2:4], tensor[4:]), strict=True):
        np.testing.assert_array_equal(part, expected.T)


LAYOUT = [
    *(entry for n in range(3) for entry in linear(f"layers.{n}.fc", (("fc",),), depth=n)),
    *(entry for n in range(3) for entry in linear(f"layers.{n}.qkv", (("q",), ("k",)), depth=n, has_bias=False)),
    Entry("norm.weight", (("norm", "scale"),)),
]
SHAPES = {
    ("fc", "kernel"): (3, 2, 5),
    ("fc", "bias"): (3, 5),
    ("q", "kernel"): (3, 2, 2),
    ("k", "kernel"): (3, 2, 2),
    ("norm", "scale"): (4,),
}


def draw_tensors():
    shapes = {"norm.weight": (4,)}
    for n in range(3):
        shapes |= {f"layers.{n}.fc.weight": (5, 2), f"layers.{n}.fc.bias": (5,), f"layers.{n}.qkv.weight": (4, 2)}
    return {name: draw(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}


def test_layers_are_stacked_in_their_order():
    tensors = draw_tensors()
    values = to_state(LAYOUT, tensors, SHAPES)
    assert {path: value.shape for path, value in values.items()} == SHAPES
    np.testing.assert_array_equal(values["fc", "kernel"][2], tensors["layers.2.fc.weight"].T)
    np.testing.assert_array_equal(values["k", "kernel"][1], tensors["layers.1.qkv.weight"][2:].T)


def test_back_and_forth_changes_no_bit():
    tensors = draw_tensors()
    tensors["norm.weight"][:] = [0.0, -0.0, np.float32(1e-45), np.inf]
    back = to_tensors(LAYOUT, to_state(LAYOUT, tensors, SHAPES))
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (back[name].dtype, back[name].shape) == (tensor.dtype, tensor.shape)
        assert back[name].tobytes() == tensor.tobytes()
        assert back[name].flags.c_contiguous


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"norm.weight": None}, "but lacks norm.weight. "),
        ({"other": draw(3)}, "but has the unknown other. "),
        ({"norm.weight": None, "other": draw(3)}, "but lacks norm.weight and has the unknown other. "),
        ({f"extra{n}": draw(3) for n in range(7)}, "unknown extra0, extra1, extra2, extra3 and 3 more. "),
        ({"norm.weight": draw(5)}, r"norm.weight \[5\] instead of \[4\]"),
        ({"norm.weight": draw((4, 1))}, r"norm.weight \[4, 1\] instead of \[4\]"),
        ({"norm.weight": draw(())}, r"norm.weight \[\] instead of \[4\]"),
        ({"layers.1.qkv.weight": draw((2, 4))}, r"layers.1.qkv.weight \[2, 4\] instead of \[4, 2\]"),
        ({"norm.weight": np.ones(4, np.int8)}, r"norm.weight \[4\] of int8 instead of \[4\]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(changes, match):
    tensors = {name: value for name, value in (draw_tensors() | changes).items() if value is not None}
    with pytest.raises(InputError, match=match):
        to_state(LAYOUT, tensors, SHAPES)


def test_a_tensor_known_to_be_of_no_use_is_ignored():
    to_state(LAYOUT, {**draw_tensors(), "pooler": draw(3)}, SHAPES, ignored=["pooler", "absent"])


@pytest.mark.parametrize("drop", [0, 7, -1])
def test_a_layout_that_leaves_a_parameter_at_zero_is_a_bug(drop):
    layout = list(LAYOUT)
    dropped = layout.pop(drop)
    tensors = draw_tensors()
    del tensors[dropped.theirs]
    with pytest.raises(AssertionError):
        to_state(layout, tensors, SHAPES)


def test_64_bits_stay_64_bits():
    tensors = {name: value.astype(np.float64) for name, value in draw_tensors().items()}
    assert {value.dtype for value in to_state(LAYOUT, tensors, SHAPES).values()} == {np.dtype(np.float64)}
