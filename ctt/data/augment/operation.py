"""The operations of RandAugment on one image, with the strengths of timm's table.

A magnitude runs from 0 to 10, and every operation is stronger the larger it is (timm's ``inc1``). Under `jax.vmap`
every image would pay for all operations, so they are three: a table of new values a channel, into which eight
operations are written and which is looked up once; a blend with the grey or the smoothed image; and a resampling.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ctt.data.augment.affine import MAPS, move, tabulate_maps
from ctt.data.augment.blend import Image, blend, mean_grey, smooth, tabulate_factors, to_grey

TONES = (
    "auto_contrast",
    "equalize",
    "invert",
    "posterize",
    "solarize",
    "solarize_add",
    "contrast",
    "brightness",
)
"""Operations that replace values by others, whatever their place."""

OPERATIONS = (*TONES, "color", "sharpness", *MAPS)
"""What RandAugment draws from, each with equal probability."""

_COLOR = OPERATIONS.index("color")
_FIRST_MAP = OPERATIONS.index(MAPS[0])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Strengths:
    """What magnitudes mean for images of one size; each field has a row a magnitude.

    Attributes:
        posterize: a mask of the bits that are kept `[magnitudes]`.
        solarize: the least value that is inverted `[magnitudes]`.
        solarize_add: what is added to dark values `[magnitudes]`.
        factors: factors of the blends, away from 1 downwards and upwards `[magnitudes, 2]`.
        maps: matrices of the maps, in both directions `[magnitudes, 2, maps, 6]`.
    """

    posterize: np.ndarray
    solarize: np.ndarray
    solarize_add: np.ndarray
    factors: np.ndarray
    maps: np.ndarray


def tabulate(magnitudes: np.ndarray, height: int, width: int) -> Strengths:
    """Return what magnitudes mean.

    Args:
        magnitudes: 0 to 10 `[magnitudes]`.
        height: rows of the image.
        width: columns of the image.

    References:
        timm's `auto_augment`, the functions ``_..._level_to_arg`` of ``_RAND_INCREASING_TRANSFORMS``.
    """
    shares = np.asarray(magnitudes, np.float64) / 10
    directions = np.stack([-shares, shares], axis=-1)
    maps = tabulate_maps(directions.ravel(), height, width).reshape(len(shares), 2, len(MAPS), 6)
    return Strengths(
        posterize=-(2 ** (4 + np.floor(4 * shares)).astype(np.int32)),
        solarize=256 - np.floor(256 * shares).astype(np.int32),
        solarize_add=np.floor(110 * shares).astype(np.int32),
        factors=tabulate_factors(np.maximum(1 + 0.9 * directions, 0.1)),
        maps=maps,
    )


def apply_operation(
    image: Image,
    index: Array,
    magnitude: Array,
    direction: Array,
    strengths: Strengths,
    *,
    fill: Int[Array, " channels"],
) -> Image:
    """Return the image after one operation.

    Args:
        image: pixels `[height, width, channels]`, 0 to 255.
        index: which of `OPERATIONS`.
        magnitude: which row of `strengths`.
        direction: of the operations that have one, 0 or 1.
        strengths: of `tabulate`.
        fill: what comes in from outside, a value a channel.

    References:
        Cubuk et al., arXiv:1909.13719; Pillow's ImageOps, ImageEnhance and Image.transform.
    """
    strength = jax.tree.map(lambda table: jnp.asarray(table)[magnitude], strengths)
    factor, matrices = strength.factors[direction], strength.maps[direction]
    grey = to_grey(image)
    toned = look_up(_write_table(image, mean_grey(grey), index, strength, factor), image)
    background = jnp.where(index == _COLOR, grey, smooth(image))
    blended = blend(background, image, factor)
    moved = move(image, matrices[jnp.clip(index - _FIRST_MAP, 0, len(MAPS) - 1)], fill=fill)
    return jnp.where(index < _COLOR, toned, jnp.where(index < _FIRST_MAP, blended, moved))


def look_up(table: Int[Array, "channels 256"], image: Image) -> Image:
    """Return the image with each value replaced by that in its channel's table.

    Args:
        table: new values `[channels, 256]`.
        image: pixels `[height, width, channels]`.
    """
    return jnp.ravel(table)[image + 256 * jnp.arange(image.shape[-1], dtype=jnp.int32)]


def _write_table(
    image: Image, mean: Array, index: Array, strength: Strengths, factor: Array
) -> Int[Array, "channels 256"]:
    """Return the table of one of `TONES`."""
    values = jnp.arange(256, dtype=jnp.int32)
    inverted = 255 - values
    same_for_all = {
        "invert": inverted,
        "posterize": values & strength.posterize,
        "solarize": jnp.where(values < strength.solarize, values, inverted),
        "solarize_add": jnp.where(values < 128, jnp.minimum(values + strength.solarize_add, 255), values),
        "contrast": blend(mean, values, factor),
        "brightness": blend(jnp.zeros_like(mean), values, factor),
    }
    shape = (image.shape[-1], 256)
    tables = {name: jnp.broadcast_to(table, shape) for name, table in same_for_all.items()}
    tables |= {"auto_contrast": _stretch(image), "equalize": _equalize(image)}
    return jnp.stack([tables[name] for name in TONES])[jnp.clip(index, 0, len(TONES) - 1)]


def _stretch(image: Image) -> Int[Array, "channels 256"]:
    """Return the tables that stretch each channel to 0 to 255, as `ImageOps.autocontrast` does."""
    low, high = jnp.min(image, axis=(0, 1))[:, None], jnp.max(image, axis=(0, 1))[:, None]
    values = jnp.arange(256, dtype=jnp.int32)
    stretched = jnp.clip((values - low) * 255 // jnp.maximum(high - low, 1), 0, 255)
    return jnp.where(high > low, stretched, values)


def _equalize(image: Image) -> Int[Array, "channels 256"]:
    """Return the tables that make each channel's histogram even, as `ImageOps.equalize` does."""
    num_pixels, channels = image.shape[0] * image.shape[1], image.shape[-1]
    values = jnp.arange(256, dtype=jnp.int32)
    place = image + 256 * jnp.arange(channels, dtype=jnp.int32)
    histogram = jnp.zeros(256 * channels, jnp.int32).at[jnp.ravel(place)].add(1).reshape(channels, 256)
    brightest = jnp.max(image, axis=(0, 1))[:, None]
    step = (num_pixels - jnp.take_along_axis(histogram, brightest, axis=1)) // 255
    before = jnp.cumsum(histogram, axis=1, dtype=jnp.int32) - histogram
    evened = jnp.minimum((before + step // 2) // jnp.maximum(step, 1), 255)
    return jnp.where(step > 0, evened, values)
