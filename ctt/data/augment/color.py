"""RandAugment and colour jitter: what happens to one image's pixels."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key
from scipy.special import ndtri

from ctt.data.augment.blend import Image, blend, mean_grey, tabulate_factors, to_grey
from ctt.data.augment.draw import below, bin_centers, draw, happens, pick
from ctt.data.augment.operation import OPERATIONS, apply_operation, tabulate

_PROBABILITY = 0.5


def randaugment(
    key: Key[Array, ""],
    image: Image,
    *,
    num_operations: int,
    magnitude: float,
    magnitude_std: float,
    fill: Int[Array, " channels"],
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
        Cubuk et al., arXiv:1909.13719; timm's ``rand-m9-mstd0.5-inc1``, but for bicubic maps: all are bilinear.
    """
    height, width, _ = image.shape
    magnitudes = np.clip(magnitude + magnitude_std * ndtri(bin_centers()), 0, 10)
    strengths = tabulate(magnitudes, height, width)

    def operate(image: Image, key: Key[Array, ""]) -> tuple[Image, None]:
        which, strength, direction, whether = draw(key, 4)
        changed = apply_operation(
            image,
            below(which, len(OPERATIONS)),
            below(strength, len(magnitudes)),
            below(direction, 2),
            strengths,
            fill=fill,
        )
        return jnp.where(happens(whether, _PROBABILITY), changed, image), None

    return jax.lax.scan(operate, image, jax.random.split(key, num_operations))[0]


def jitter(key: Key[Array, ""], image: Image, *, strength: float) -> Image:
    """Return the image with brightness, contrast and saturation multiplied by random factors, in this order.

    Args:
        key: draws the factors, uniform in [max(0, 1 - strength), 1 + strength].
        image: pixels `[height, width, channels]`, 0 to 255.
        strength: > 0.
    """
    low, high = max(0.0, 1 - strength), 1 + strength
    factors = tabulate_factors(low + (high - low) * bin_centers())
    brightness, contrast, saturation = (pick(number, factors) for number in draw(key, 3))
    image = blend(jnp.zeros_like(image), image, brightness)
    image = blend(mean_grey(to_grey(image)), image, contrast)
    return blend(to_grey(image), image, saturation)
