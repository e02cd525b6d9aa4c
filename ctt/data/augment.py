"""Random crops and mirror images, drawn for each example from its own key."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, UInt8


def augment(
    keys: Key[Array, " batch"], images: UInt8[Array, "batch height width channels"], *, crop_padding: int, flip: bool
) -> UInt8[Array, "batch height width channels"]:
    """Shift and mirror each image at random.

    An image is padded with zeros by `crop_padding` on each side and cropped back to its shape at
    a uniformly random place; then it is mirrored left to right with probability 1/2. Each example
    depends on its own key alone, so it is augmented in the same way in any batch. Crop and flip
    draw from separate keys: switching one off does not change the other.

    Args:
        keys: typed keys `[batch]`, one an example.
        images: pixels `[batch, height, width, channels]`.
        crop_padding: pixels added to each side before the crop, >= 0; 0: no crop.
        flip: whether to mirror.

    Returns:
        Pixels `[batch, height, width, channels]`, of the same dtype.
    """

    def augment_one(key: Key[Array, ""], image: UInt8[Array, "height width channels"]) -> Array:
        crop_key, flip_key = jax.random.split(key)
        cropped = _crop(crop_key, image, padding=crop_padding) if crop_padding else image
        return jnp.where(jax.random.bernoulli(flip_key), cropped[:, ::-1], cropped) if flip else cropped

    return jax.vmap(augment_one)(keys, images)


def _crop(
    key: Key[Array, ""], image: UInt8[Array, "height width channels"], *, padding: int
) -> UInt8[Array, "height width channels"]:
    """Return a random crop of the image padded with zeros."""
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    row, column = jax.random.randint(key, (2,), 0, 2 * padding + 1)
    return jax.lax.dynamic_slice(padded, (row, column, jnp.zeros_like(row)), image.shape)
