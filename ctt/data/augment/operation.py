"""The operations of RandAugment on one image, with strengths of timm's table.

A magnitude m runs from 0 to 10, and every operation is stronger the larger it is (timm's ``inc1``). Rotations, shears
and translations are one affine map with different matrices; colour, contrast, brightness and sharpness are one blend
with different backgrounds: a batch computes each once, whatever its examples drew.
"""

from typing import TypeAlias

import dm_pix as pix
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Image: TypeAlias = Float[Array, "height width channels"]
"""Pixels of one image, 0 to 255, as floats."""

OPERATIONS = (
    "auto_contrast",
    "equalize",
    "invert",
    "posterize",
    "solarize",
    "solarize_add",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "rotate",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
"""What RandAugment draws from, each with equal probability."""

_FIRST_BLEND, _FIRST_AFFINE = OPERATIONS.index("color"), OPERATIONS.index("rotate")


def apply_operation(
    image: Image, index: Array, magnitude: Array, sign: Array, *, fill: Float[Array, " channels"]
) -> Image:
    """Return the image after one operation.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255, as floats.
        index: which of `OPERATIONS`.
        magnitude: strength, in [0, 10].
        sign: direction of the operations that have one, 1 or -1.
        fill: what comes in from outside, a value a channel.

    References:
        Cubuk et al., arXiv:1909.13719; strengths as in timm's `auto_augment`, ``rand-...-inc1``.
    """
    share = magnitude / 10
    tones = jnp.stack(
        [
            auto_contrast(image),
            equalize(image),
            255 - image,
            posterize(image, 4 - jnp.floor(4 * share)),
            solarize(image, 256 - jnp.floor(256 * share)),
            jnp.where(image < 128, jnp.minimum(image + jnp.floor(110 * share), 255), image),
        ]
    )
    blended = blend(image, index - _FIRST_BLEND, 1 + 0.9 * share * sign)
    moved = move(image, index - _FIRST_AFFINE, share * sign, fill=fill)
    tone = tones[jnp.clip(index, 0, len(tones) - 1)]
    return jnp.where(index < _FIRST_BLEND, tone, jnp.where(index < _FIRST_AFFINE, blended, moved))


def auto_contrast(image: Image) -> Image:
    """Return the image with each channel stretched to 0 to 255.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255.
    """
    low, high = jnp.min(image, axis=(0, 1)), jnp.max(image, axis=(0, 1))
    stretched = jnp.floor((image - low) * (255 / jnp.maximum(high - low, 1)))
    return jnp.where(high > low, stretched, image)


def equalize(image: Image) -> Image:
    """Return the image with each channel's histogram made even, as Pillow's `ImageOps.equalize` does.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255, whole numbers.
    """

    def equalize_channel(values: Array) -> Array:
        levels = values.astype(jnp.int32)
        histogram = jnp.zeros(256, jnp.int32).at[levels.ravel()].add(1)
        last = jnp.max(jnp.where(histogram > 0, jnp.arange(256), 0))
        step = (jnp.sum(histogram) - histogram[last]) // 255
        before = jnp.cumsum(histogram) - histogram
        table = jnp.minimum((before + step // 2) // jnp.maximum(step, 1), 255)
        return jnp.where(step > 0, table[levels], levels)

    return jax.vmap(equalize_channel, in_axes=-1, out_axes=-1)(image).astype(image.dtype)


def posterize(image: Image, bits: Array) -> Image:
    """Return the image with the highest bits of each value alone.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255, whole numbers.
        bits: how many are kept, 0 to 8.
    """
    step = 2.0 ** (8 - bits)
    return jnp.floor(image / step) * step


def solarize(image: Image, threshold: Array) -> Image:
    """Return the image with values at or above a threshold inverted.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255.
        threshold: 0 to 256.
    """
    return 255 * pix.solarize(image / 255, threshold / 255)


def blend(image: Image, index: Array, factor: Array) -> Image:
    """Return ``background + factor * (image - background)``, clipped to 0 to 255.

    The background is the image in grey (0: colour), the mean grey (1: contrast), black (2: brightness) or the smoothed
    image (3: sharpness).

    Args:
        image: pixels `[height, width, channels]`, 0 to 255.
        index: which background, 0 to 3.
        factor: 1 changes nothing, 0 gives the background.
    """
    grey = to_grey(image)
    backgrounds = jnp.stack(
        [grey, jnp.full_like(image, jnp.round(jnp.mean(grey))), jnp.zeros_like(image), smooth(image)]
    )
    background = backgrounds[jnp.clip(index, 0, 3)]
    return jnp.clip(jnp.round(background + factor * (image - background)), 0, 255)


def to_grey(image: Image) -> Image:
    """Return the luma (ITU-R 601-2) of each pixel in every channel; one channel is left as it is.

    Args:
        image: pixels `[height, width, channels]`, 1 or 3 channels.
    """
    if image.shape[-1] == 1:
        return image
    return jnp.round(pix.rgb_to_grayscale(image, keep_dims=True))


def smooth(image: Image) -> Image:
    """Return the image under Pillow's filter `SMOOTH`, the border as it is.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255.
    """
    height, width, _ = image.shape
    if min(height, width) < 3:
        return image
    rows = [image[i : height - 2 + i] for i in range(3)]
    sums = sum(row[:, j : width - 2 + j] for row in rows for j in range(3))
    inner = jnp.round((sums + 4 * image[1:-1, 1:-1]) / 13)
    return image.at[1:-1, 1:-1].set(inner)


def move(image: Image, index: Array, strength: Array, *, fill: Float[Array, " channels"]) -> Image:
    """Return the image rotated (0), sheared (1, 2) or translated (3, 4), bilinear.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255.
        index: which map, 0 to 4; the odd ones act along a row.
        strength: -1 to 1: 30 degrees, a shear of 0.3, 0.45 of the side.
        fill: what comes in from outside, a value a channel.
    """
    height, width, _ = image.shape
    angle = jnp.where(index == 0, jnp.pi / 6 * strength, 0.0)
    shear_x, shear_y = (jnp.where(index == i, 0.3 * strength, 0.0) for i in (1, 2))
    shift_x, shift_y = (jnp.where(index == i, 0.45 * strength * side, 0.0) for i, side in ((3, width), (4, height)))
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    # From the place of a pixel of the result to where it is taken from, rows first.
    linear = jnp.stack([jnp.stack([cos, shear_y - sin]), jnp.stack([shear_x + sin, cos])])
    center = jnp.array([(height - 1) / 2, (width - 1) / 2])
    # A rotation turns about the centre; a shear leaves the first row or column in place, as timm's does.
    origin = jnp.where(index == 0, center, 0.0)
    offset = origin - linear @ origin + jnp.stack([shift_y, shift_x])
    matrix = jnp.eye(4).at[:2, :2].set(linear).at[:2, 3].set(offset)
    moved = pix.affine_transform(image - fill, matrix, order=1, mode="constant", cval=0.0)
    return jnp.clip(jnp.round(moved + fill), 0, 255)
