"""Brightness, contrast, colour and sharpness: all blend an image with a duller or brighter one.

All arithmetic is in whole numbers of 32 bits, factors being multiples of 1/4096: it gives the same bits compiled or
not, on any number of devices, and the pixels of Pillow.
"""

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

Image: TypeAlias = Int[Array, "height width channels"]
"""Pixels of one image, 0 to 255, as whole numbers of 32 bits."""

_BITS = 12
_LARGEST = 256  # Any larger factor gives black and white alone, as this one does.


def tabulate_factors(factors: np.ndarray) -> np.ndarray:
    """Return factors as `blend` takes them, whole numbers `[...]`.

    Args:
        factors: >= 0 `[...]`.
    """
    return np.round(np.minimum(factors, _LARGEST) * 2**_BITS).astype(np.int32)


def blend(background: Array, image: Array, factor: Array) -> Array:
    """Return ``background + factor * (image - background)`` rounded down, from 0 to 255, as `Image.blend` does.

    Args:
        background: pixels, 0 to 255; broadcast against `image`.
        image: pixels, 0 to 255.
        factor: 0 gives the background, 1 the image, more goes beyond it; of `tabulate_factors`.
    """
    return jnp.clip(((background << _BITS) + factor * (image - background)) >> _BITS, 0, 255)


def to_grey(image: Image) -> Image:
    """Return the luma of each pixel (ITU-R 601-2) `[height, width, 1]`; one channel is left as it is.

    Args:
        image: pixels `[height, width, channels]`, 1 or 3 channels.
    """
    if image.shape[-1] == 1:
        return image
    weights = jnp.array([19595, 38470, 7471], jnp.int32)  # Of 0.299, 0.587 and 0.114, in units of 2^-16.
    return (jnp.sum(image * weights, axis=-1, keepdims=True, dtype=jnp.int32) + (1 << 15)) >> 16


def mean_grey(grey: Image) -> Int[Array, ""]:
    """Return the mean of a grey image, rounded.

    Args:
        grey: pixels `[height, width, 1]`, at most 2^23 of them.
    """
    half = grey.size // 2
    return (jnp.sum(grey, dtype=jnp.int32) + half) // grey.size


def smooth(image: Image) -> Image:
    """Return the image under Pillow's filter `SMOOTH`, the border as it is.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255.
    """
    height, width, _ = image.shape
    if min(height, width) < 3:
        return image
    center = image[1:-1, 1:-1]
    rows = image[:-2] + image[1:-1] + image[2:]
    sums = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * center
    return image.at[1:-1, 1:-1].set((2 * sums + 13) // 26)
