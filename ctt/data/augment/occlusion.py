"""Random erasing, and the rectangles that it shares with cutmix."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from ctt.data.augment.blend import Image
from ctt.data.augment.draw import below, bin_centers, draw, happens, pick

_AREA = (0.02, 1 / 3)
_ASPECT = 0.3


def erase(key: Key[Array, ""], image: Image, *, probability: float, fill: Int[Array, " channels"]) -> Image:
    """Return the image with one random rectangle painted over, or with ``1 - probability`` the image.

    The rectangle covers 2 to 33 % of the image, its aspect ratio is log-uniform in [0.3, 1/0.3], and it lies inside.

    Args:
        key: draws the rectangle.
        image: pixels `[height, width, channels]`, 0 to 255.
        probability: in [0, 1].
        fill: the colour, a value a channel.

    References:
        Zhong et al., arXiv:1708.04896, algorithm 1, with sides that do not fit cut instead of drawn again.
    """
    whether, area, aspect, row, column = draw(key, 5)
    height, width, _ = image.shape
    areas = height * width * (_AREA[0] + (_AREA[1] - _AREA[0]) * bin_centers())
    aspects = _ASPECT ** (1 - 2 * bin_centers())
    # The side of a square of this area, times or over the root of the aspect ratio: one rounding each.
    side = pick(area, np.sqrt(areas).astype(np.float32))
    stretch = pick(aspect, np.sqrt(np.stack([aspects, aspects[::-1]], axis=-1)).astype(np.float32))
    rows, columns = (
        jnp.clip(jnp.round(side * stretch[axis]), 1, size).astype(jnp.int32)
        for axis, size in enumerate((height, width))
    )
    top, left = below(row, height - rows + 1), below(column, width - columns + 1)
    inside = rectangle(height, width, top=top, bottom=top + rows, left=left, right=left + columns)
    return jnp.where((happens(whether, probability) & inside)[..., None], fill, image)


def rectangle(
    height: int, width: int, *, top: Array, bottom: Array, left: Array, right: Array
) -> Bool[Array, "height width"]:
    """Return which pixels lie in a rectangle `[height, width]`; its lower and right ends are not part of it.

    Args:
        height: rows of the image.
        width: columns of the image.
        top: first row.
        bottom: row after the last.
        left: first column.
        right: column after the last.
    """
    rows, columns = jnp.arange(height)[:, None], jnp.arange(width)
    return (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
