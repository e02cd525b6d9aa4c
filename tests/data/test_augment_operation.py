"""The operations of RandAugment against Pillow, with the strengths of timm's `_RAND_INCREASING_TRANSFORMS`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from ctt.data.augment.affine import move, tabulate_maps
from ctt.data.augment.blend import blend, smooth, tabulate_factors, to_grey
from ctt.data.augment.operation import OPERATIONS, TONES, apply_operation, tabulate

HEIGHT, WIDTH = 26, 20
RAMP = np.arange(HEIGHT)[:, None, None] * 4 + np.arange(WIDTH)[None, :, None] * 3 + np.array([0, 20, 40])
PIXELS = {
    "noise": np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3)),
    "dark": np.random.default_rng(1).integers(30, 90, (HEIGHT, WIDTH, 3)),
    "ramp": RAMP,
    "flat": np.full((HEIGHT, WIDTH, 3), 77),
    "black": np.zeros((HEIGHT, WIDTH, 3), int),
    "white": np.full((HEIGHT, WIDTH, 3), 255),
    "two": np.random.default_rng(2).choice([10, 240], (HEIGHT, WIDTH, 3)),
}
IMAGES = np.stack([image.astype(np.uint8) for image in PIXELS.values()])
FILL = (10, 20, 30)
MAGNITUDES = (0.0, 0.3, 3.0, 8.7, 10.0)


def timm_operation(image, name, magnitude, sign):
    """Return what timm does to a Pillow image, from its definitions of levels and operations."""
    share, width, height = magnitude / 10, *image.size
    factor = max(0.1, 1 + 0.9 * share * sign)

    def transform(matrix):
        return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=FILL)

    def solarize_add():
        table = [min(255, i + min(128, int(share * 110))) if i < 128 else i for i in range(256)]
        return image.point(table * 3)

    return {
        "auto_contrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
        "invert": lambda: ImageOps.invert(image),
        "posterize": lambda: image.point([i & ~(2 ** (4 + int(share * 4)) - 1) for i in range(256)] * 3),
        "solarize": lambda: ImageOps.solarize(image, 256 - min(256, int(share * 256))),
        "solarize_add": solarize_add,
        "contrast": lambda: ImageEnhance.Contrast(image).enhance(factor),
        "brightness": lambda: ImageEnhance.Brightness(image).enhance(factor),
        "color": lambda: ImageEnhance.Color(image).enhance(factor),
        "sharpness": lambda: ImageEnhance.Sharpness(image).enhance(factor),
        "rotate": lambda: image.rotate(share * 30 * sign, Image.Resampling.BILINEAR, fillcolor=FILL),
        "shear_x": lambda: transform((1, share * 0.3 * sign, 0, 0, 1, 0)),
        "shear_y": lambda: transform((1, 0, 0, share * 0.3 * sign, 1, 0)),
        "translate_x": lambda: transform((1, 0, share * 0.45 * sign * width, 0, 1, 0)),
        "translate_y": lambda: transform((1, 0, 0, 0, 1, share * 0.45 * sign * height)),
    }[name]()


@pytest.fixture(scope="module")
def results():
    """All operations on all images `[operations, magnitudes, 2, images, height, width, 3]`, compiled once."""
    strengths = tabulate(np.array(MAGNITUDES), HEIGHT, WIDTH)

    def operate(image, index, magnitude, direction):
        return apply_operation(image, index, magnitude, direction, strengths, fill=jnp.array(FILL))

    for axis in (0, 3, 2, 1):
        operate = jax.vmap(operate, in_axes=tuple(0 if axis == n else None for n in range(4)))
    counts = [jnp.arange(count) for count in (len(OPERATIONS), len(MAGNITUDES), 2)]
    return np.asarray(jax.jit(operate)(jnp.asarray(IMAGES, jnp.int32), *counts))


EXACT = ("auto_contrast", "equalize", "invert", "posterize", "solarize", "solarize_add")


@pytest.mark.parametrize("image", range(len(PIXELS)), ids=PIXELS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_timms(results, name, image):
    """To the bit, or within one where a factor or a place is a fraction, which both round down."""
    for row, magnitude in enumerate(MAGNITUDES):
        for column, sign in enumerate((-1, 1)):
            expected = np.asarray(timm_operation(Image.fromarray(IMAGES[image]), name, magnitude, sign)).astype(int)
            received = results[OPERATIONS.index(name), row, column, image]
            np.testing.assert_allclose(received, expected, rtol=0, atol=0 if name in EXACT else 1)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ("auto_contrast", "equalize", "invert")])
def test_a_stronger_operation_changes_an_image_more(results, name):
    dark = results[OPERATIONS.index(name), :, :, list(PIXELS).index("dark")]
    changes = np.abs(dark - IMAGES[list(PIXELS).index("dark")].astype(int)).mean(axis=(2, 3, 4))
    assert (changes[1] < changes[-1]).all()


@pytest.mark.parametrize("name", OPERATIONS[len(TONES) - 2 :])
def test_strength_zero_changes_nothing(results, name):
    np.testing.assert_array_equal(results[OPERATIONS.index(name), 0], np.broadcast_to(IMAGES, (2, *IMAGES.shape)))


@pytest.mark.parametrize(("size", "channels"), [((1, 1), 1), ((2, 5), 3)])
def test_the_smallest_images_pass(size, channels):
    image = jnp.asarray(np.random.default_rng(0).integers(0, 256, (*size, channels)), jnp.int32)
    strengths = tabulate(np.array([7.0]), *size)
    operate = jax.vmap(
        lambda index: apply_operation(image, index, 0, 1, strengths, fill=jnp.array(FILL[:channels])),
    )
    changed = np.asarray(jax.jit(operate)(jnp.arange(len(OPERATIONS))))
    assert changed.shape == (len(OPERATIONS), *size, channels)
    assert changed.min() >= 0
    assert changed.max() <= 255


def test_one_channel_is_treated_as_three_that_agree():
    grey = np.repeat(PIXELS["noise"][..., :1], 3, axis=-1)
    strengths = tabulate(np.array([6.0]), HEIGHT, WIDTH)

    def operate(image):
        pixels, fill = jnp.asarray(image, jnp.int32), jnp.full(image.shape[-1], 9)
        operate = jax.vmap(lambda index: apply_operation(pixels, index, 0, 1, strengths, fill=fill))
        return jax.jit(operate)(jnp.arange(len(OPERATIONS)))

    both = [operate(image) for image in (grey[..., :1], grey)]
    np.testing.assert_array_equal(np.broadcast_to(both[0], both[1].shape), both[1])


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.75, 3.0, 1000.0])
def test_a_blend_by_a_multiple_of_the_unit_is_pillows_bit_for_bit(factor):
    background, image = IMAGES[0], IMAGES[1]
    expected = Image.blend(Image.fromarray(background), Image.fromarray(image), factor)
    pixels = [jnp.asarray(values, jnp.int32) for values in (background, image)]
    np.testing.assert_array_equal(blend(*pixels, jnp.asarray(tabulate_factors(np.array(factor)))), expected)


def test_grey_and_smooth_are_pillows():
    image, pixels = Image.fromarray(IMAGES[0]), jnp.asarray(IMAGES[0], jnp.int32)
    np.testing.assert_array_equal(to_grey(pixels)[..., 0], image.convert("L"))
    np.testing.assert_array_equal(smooth(pixels), image.filter(ImageFilter.SMOOTH))


def test_a_large_image_does_not_overflow():
    """At the largest side, a rotation by 30 degrees is still Pillow's."""
    side = 2048
    pixels = np.add.outer(np.arange(side), 2 * np.arange(side))[..., None] % 256
    matrix = tabulate_maps(np.array([1.0]), side, side)[0, 0]
    received = np.asarray(jax.jit(move)(jnp.asarray(pixels, jnp.int32), matrix, fill=jnp.array([7])))[..., 0]
    image = Image.fromarray(pixels[..., 0].astype(np.uint8))
    expected = np.asarray(image.rotate(30, Image.Resampling.BILINEAR, fillcolor=7)).astype(int)
    assert np.mean(np.abs(received - expected) <= 3) > 0.97  # The saw's teeth fall by 255 within a pixel.
