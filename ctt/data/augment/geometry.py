"""Random crops and mirror images."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, UInt8


def crop(
    key: Key[Array, ""], image: UInt8[Array, "height width channels"], *, padding: int
) -> UInt8[Array, "height width channels"]:
    """Return the image padded with zeros and cropped back to its shape at a uniformly random place.

    Args:
        key: draws the place.
        image: pixels `[height, width, channels]`.
        padding: zeros added to each side, >= 0.
    """
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    row, column = jax.random.randint(key, (2,), 0, 2 * padding + 1, dtype=jnp.int32)
    return jax.lax.dynamic_slice(padded, (row, column, jnp.zeros_like(row)), image.shape)


def flip(key: Key[Array, ""], image: UInt8[Array, "height width channels"]) -> UInt8[Array, "height width channels"]:
    """Return the image, or with probability 1/2 its mirror image, left to right.

    Args:
        key: draws which.
        image: pixels `[height, width, channels]`.
    """
    return jnp.where(jax.random.bernoulli(key, jnp.float32(0.5)), image[:, ::-1], image)
