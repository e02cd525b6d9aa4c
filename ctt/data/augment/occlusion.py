"""Random erasing, and the rectangles that it shares with cutmix."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ctt.data.augment.operation import Image

_AREA = (0.02, 1 / 3)
_ASPECT = 0.3


def erase(key: Key[Array, ""], image: Image, *, probability: float, fill: Float[Array, " channels"]) -> Image:
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
    whether, area_key, aspect_key, place = jax.random.split(key, 4)
    height, width, _ = image.shape
    area = height * width * jax.random.uniform(area_key, minval=_AREA[0], maxval=_AREA[1])
    log = jnp.log(_ASPECT)
    aspect = jnp.exp(jax.random.uniform(aspect_key, minval=log, maxval=-log))
    sides = [jnp.sqrt(area * aspect), jnp.sqrt(area / aspect)]
    rows, columns = (
        jnp.clip(jnp.round(side), 1, size).astype(jnp.int32) for side, size in zip(sides, (height, width), strict=True)
    )
    shares = jax.random.uniform(place, (2,))
    top, left = (
        jnp.floor(share * (size - side + 1)).astype(jnp.int32)
        for share, size, side in zip(shares, (height, width), (rows, columns), strict=True)
    )
    inside = rectangle(height, width, top=top, bottom=top + rows, left=left, right=left + columns)
    is_erased = jax.random.bernoulli(whether, probability) & inside
    return jnp.where(is_erased[..., None], fill, image)


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
