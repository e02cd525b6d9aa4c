"""The operations of RandAugment against Pillow's, on which timm's are built."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from ctt.data.augment.operation import (
    OPERATIONS,
    apply_operation,
    auto_contrast,
    blend,
    equalize,
    move,
    posterize,
    solarize,
)

PIXELS = {
    "noise": np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8),
    "dark": np.random.default_rng(1).integers(30, 90, (12, 10, 3), dtype=np.uint8),
    "flat": np.full((12, 10, 3), 77, np.uint8),
    "steps": np.repeat(np.arange(0, 240, 20, dtype=np.uint8)[:, None, None], 10, 1).repeat(3, 2),
}
FILL = jnp.array([10.0, 20.0, 30.0])


@pytest.fixture(params=PIXELS, ids=PIXELS.keys())
def pixels(request):
    """An image of 12 x 10 pixels."""
    return PIXELS[request.param]


def floats(pixels):
    return jnp.asarray(pixels, jnp.float32)


def test_auto_contrast_is_pillows(pixels):
    np.testing.assert_allclose(auto_contrast(floats(pixels)), ImageOps.autocontrast(Image.fromarray(pixels)), atol=1)


def test_equalize_is_pillows(pixels):
    np.testing.assert_array_equal(equalize(floats(pixels)), ImageOps.equalize(Image.fromarray(pixels)))


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_posterize_is_pillows(pixels, bits):
    expected = ImageOps.posterize(Image.fromarray(pixels), bits)
    np.testing.assert_array_equal(posterize(floats(pixels), jnp.asarray(bits)), expected)


@pytest.mark.parametrize("threshold", [0, 100, 256])
def test_solarize_is_pillows(pixels, threshold):
    expected = ImageOps.solarize(Image.fromarray(pixels), threshold)
    np.testing.assert_allclose(solarize(floats(pixels), jnp.asarray(threshold)), expected, atol=1e-3)


@pytest.mark.parametrize("factor", [0.1, 0.6, 1.0, 1.9])
@pytest.mark.parametrize("index", range(4))
def test_a_blend_is_pillows(pixels, index, factor):
    enhance = (ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Brightness, ImageEnhance.Sharpness)[index]
    expected = np.asarray(enhance(Image.fromarray(pixels)).enhance(factor))
    received = np.asarray(blend(floats(pixels), jnp.asarray(index), jnp.asarray(factor)))
    np.testing.assert_allclose(received, expected, atol=2)


@pytest.mark.parametrize("strength", [-1.0, -0.4, 0.7])
@pytest.mark.parametrize("index", [1, 2, 3, 4])
def test_an_affine_map_is_pillows_within_the_image(index, strength):
    rows, columns = np.mgrid[:24, :20]
    pixels = np.stack([4 * rows + 3 * columns, 2 * rows + 5 * columns, rows + columns], axis=-1).astype(np.uint8)
    matrix = {
        1: (1, 0.3 * strength, 0, 0, 1, 0),
        2: (1, 0, 0, 0.3 * strength, 1, 0),
        3: (1, 0, 0.45 * strength * 20, 0, 1, 0),
        4: (1, 0, 0, 0, 1, 0.45 * strength * 24),
    }[index]
    expected = Image.fromarray(pixels).transform((20, 24), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    received = move(floats(pixels), jnp.asarray(index), jnp.asarray(strength), fill=FILL)
    source_rows = matrix[3] * columns + matrix[4] * rows + matrix[5]
    source_columns = matrix[0] * columns + matrix[1] * rows + matrix[2]
    inside = (source_rows > 1) & (source_rows < 22) & (source_columns > 1) & (source_columns < 18)
    # Pillow counts from the corner of the first pixel and not from its centre: up to half a shear's pixel.
    np.testing.assert_allclose(received[inside], np.asarray(expected, float)[inside], atol=2.5)


def test_a_rotation_turns_about_the_centre():
    pixels = np.zeros((9, 9, 3), np.uint8)
    pixels[4, 4], pixels[4, 8] = 200, 100
    turned = move(floats(pixels), jnp.asarray(0), jnp.asarray(1.0), fill=0 * FILL)
    np.testing.assert_allclose(turned[4, 4], 200)
    place = np.unravel_index(np.argmax(np.where(np.arange(9) == 4, 0, turned[..., 0])), (9, 9))
    distance = math.hypot(place[0] - 4, place[1] - 4)
    angle = math.degrees(math.atan2(4 - place[0], place[1] - 4))
    assert abs(distance - 4) < 1
    assert abs(abs(angle) - 30) < 12


def test_what_comes_in_from_outside_has_the_fill_colour():
    moved = move(floats(PIXELS["noise"]), jnp.asarray(3), jnp.asarray(1.0), fill=FILL)
    np.testing.assert_allclose(moved[:, -1], np.broadcast_to(FILL, (12, 3)))


@pytest.mark.parametrize("index", range(len(OPERATIONS)), ids=OPERATIONS)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_stronger_operation_changes_an_image_more(index, sign):
    image = floats(np.random.default_rng(1).integers(30, 90, (24, 20, 3), dtype=np.uint8))

    def change(magnitude):
        result = apply_operation(image, jnp.asarray(index), jnp.asarray(magnitude), jnp.asarray(sign), fill=FILL)
        assert float(jnp.min(result)) >= 0
        assert float(jnp.max(result)) <= 255
        return float(jnp.mean(jnp.abs(result - image)))

    if OPERATIONS[index] in ("auto_contrast", "equalize", "invert"):
        assert change(0.0) == change(10.0) > 0
    else:
        assert change(0.0) <= 12  # Posterising to four bits is the weakest.
        assert change(10.0) > change(1.0)


@pytest.mark.parametrize("name", ["color", "rotate", "shear_x", "translate_y", "brightness"])
def test_strength_zero_changes_nothing(name):
    image = floats(PIXELS["noise"])
    result = apply_operation(image, jnp.asarray(OPERATIONS.index(name)), jnp.zeros(()), jnp.ones(()), fill=FILL)
    np.testing.assert_allclose(result, image, atol=1e-3)
