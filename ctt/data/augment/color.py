"""RandAugment and colour jitter: what happens to one image's pixels."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ctt.data.augment.operation import OPERATIONS, Image, apply_operation, blend

_COLOR, _CONTRAST, _BRIGHTNESS = 0, 1, 2
_PROBABILITY = 0.5


def randaugment(
    key: Key[Array, ""],
    image: Image,
    *,
    num_operations: int,
    magnitude: float,
    magnitude_std: float,
    fill: Float[Array, " channels"],
) -> Image:
    """Return the image after random operations, each of which happens with probability 1/2.

    Args:
        key: draws the operations, their magnitudes and directions.
        image: pixels `[height, width, channels]`, 0 to 255.
        num_operations: how many are drawn, with repetition.
        magnitude: mean strength, 0 to 10.
        magnitude_std: standard deviation of the strength, which is clipped to [0, 10].
        fill: what comes in from outside, a value a channel.

    References:
        Cubuk et al., arXiv:1909.13719; timm's ``rand-m9-mstd0.5-inc1``.
    """

    def operate(image: Image, key: Key[Array, ""]) -> tuple[Image, None]:
        which, strength, sign, whether = jax.random.split(key, 4)
        index = jax.random.randint(which, (), 0, len(OPERATIONS))
        drawn = jnp.clip(magnitude + magnitude_std * jax.random.normal(strength), 0, 10)
        direction = jnp.where(jax.random.bernoulli(sign), 1.0, -1.0)
        changed = apply_operation(image, index, drawn, direction, fill=fill)
        return jnp.where(jax.random.bernoulli(whether, _PROBABILITY), changed, image), None

    return jax.lax.scan(operate, image, jax.random.split(key, num_operations))[0]


def jitter(key: Key[Array, ""], image: Image, *, strength: float) -> Image:
    """Return the image with brightness, contrast and saturation multiplied by random factors, in this order.

    Args:
        key: draws the factors, uniform in [max(0, 1 - strength), 1 + strength].
        image: pixels `[height, width, channels]`, 0 to 255.
        strength: > 0.
    """
    factors = jax.random.uniform(key, (3,), minval=max(0.0, 1 - strength), maxval=1 + strength)
    for factor, background in zip(factors, (_BRIGHTNESS, _CONTRAST, _COLOR), strict=True):
        image = blend(image, jnp.asarray(background), factor)
    return image
