"""Rotations, shears and translations: one resampling, a matrix an image."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ctt.data.augment.blend import Image

MAPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
"""What `tabulate_maps` tabulates, in this order."""

_BITS = 16  # Of the fraction of a place; the rest holds sides up to 2^13.
_WEIGHT_BITS = 11
_ANGLE, _SHEAR, _SHIFT = 30.0, 0.3, 0.45


def tabulate_maps(strengths: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the matrices of all maps at some strengths.

    Args:
        strengths: -1 to 1 `[bins]`; 1 is 30 degrees counter-clockwise, a shear of 0.3, a shift by 0.45 of the side.
        height: rows of the image.
        width: columns of the image.

    Returns:
        ``(a, b, c, d, e, f)`` of each `[bins, maps, 6]`, for `move`.
    """
    zero, one = np.zeros_like(strengths), np.ones_like(strengths)
    angle = np.deg2rad(_ANGLE) * strengths
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = width / 2, height / 2
    shear, shift = _SHEAR * strengths, _SHIFT * strengths
    matrices = [
        (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y),
        (one, shear, zero, zero, one, zero),
        (one, zero, zero, shear, one, zero),
        (one, zero, shift * width, zero, one, zero),
        (one, zero, zero, zero, one, shift * height),
    ]
    # Linear parts act on twice the place of a pixel, which is a whole number.
    scale = 2.0 ** np.array([_BITS - 1, _BITS - 1, _BITS] * 2)
    return np.round(np.moveaxis(np.array(matrices), -1, 0) * scale).astype(np.int32)


def move(image: Image, matrix: Int[Array, "6"], *, fill: Int[Array, " channels"]) -> Image:
    """Return the image resampled at ``(a x + b y + c, d x + e y + f)``, bilinear, as Pillow's `Image.transform` does.

    The centre of the first pixel is at (1/2, 1/2). Beyond the border there is the fill colour, unblended.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255, at most 3 channels.
        matrix: one of `tabulate_maps`.
        fill: what comes in from outside, a value a channel.
    """
    height, width, channels = image.shape
    x, y = 2 * jnp.arange(width, dtype=jnp.int32) + 1, (2 * jnp.arange(height, dtype=jnp.int32) + 1)[:, None]
    a, b, c, d, e, f = matrix
    column, row = a * x + b * y + c, d * x + e * y + f
    inside = (column >= 0) & (column < width << _BITS) & (row >= 0) & (row < height << _BITS)
    half = 1 << (_BITS - 1)
    left, across = _split(column - half)
    top, down = _split(row - half)
    # A pixel's channels are fetched as one number: fetching is what takes the time.
    packed = sum(image[..., channel] << (8 * channel) for channel in range(channels))
    flat = jnp.ravel(jnp.asarray(packed))
    columns = [jnp.clip(left + i, 0, width - 1) for i in range(2)]
    rows = [jnp.clip(top + i, 0, height - 1) * width for i in range(2)]
    corners = [[flat[r + q] for q in columns] for r in rows]
    moved = []
    for channel in range(channels):
        values = [[(corner >> (8 * channel)) & 255 for corner in pair] for pair in corners]
        upper, lower = ((first << _WEIGHT_BITS) + across * (second - first) for first, second in values)
        moved.append(((upper << _WEIGHT_BITS) + down * (lower - upper)) >> (2 * _WEIGHT_BITS))
    return jnp.where(inside[..., None], jnp.stack(moved, axis=-1), fill)


def _split(place: Array) -> tuple[Array, Array]:
    """Return the whole part of a place, and its fraction as a weight."""
    return place >> _BITS, (place & ((1 << _BITS) - 1)) >> (_BITS - _WEIGHT_BITS)
