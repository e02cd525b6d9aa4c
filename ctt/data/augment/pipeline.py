"""All of a config's augmentations, in order."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Shaped, UInt8

from ctt.config.schema import AugmentationConfig
from ctt.data.augment.color import jitter, randaugment
from ctt.data.augment.geometry import crop, flip
from ctt.data.augment.mixture import mix
from ctt.data.augment.occlusion import erase

# Crop and flip have the two halves of an example's key; the others are folded out of it, so that switching one on
# or off changes no other.
_RANDAUGMENT, _JITTER, _ERASING, _MIXTURE = 1, 2, 3, 4


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Augmented:
    """Augmented examples.

    Attributes:
        images: pixels `[batch, height, width, channels]`, 0 to 255; uint8, and float32 where they are mixtures.
        labels: classes `[batch]`; of mixed examples the shares of all classes `[batch, classes]`, each row of sum 1.
    """

    images: Shaped[Array, "batch height width channels"]
    labels: Int[Array, " batch"] | Float[Array, "batch classes"]


def augment(
    keys: Key[Array, " batch"],
    images: UInt8[Array, "batch height width channels"],
    labels: Int[Array, " batch"],
    config: AugmentationConfig,
    *,
    num_classes: int,
    fill: tuple[float, ...],
) -> Augmented:
    """Augment a batch.

    Args:
        keys: typed keys `[batch]`, one an example.
        images: pixels `[batch, height, width, channels]`.
        labels: classes `[batch]`.
        config: what is done.
        num_classes: number of classes.
        fill: what comes in from outside or is painted over, a value of 0 to 1 a channel: the mean of the data.
    """
    color = jnp.asarray([min(max(round(255 * value), 0), 255) for value in fill], jnp.int32)

    def augment_one(key: Key[Array, ""], image: Array) -> Array:
        crop_key, flip_key = jax.random.split(key)
        image = crop(crop_key, image, padding=config.crop_padding) if config.crop_padding else image
        image = flip(flip_key, image) if config.flip else image
        if not (config.randaugment or config.color_jitter or config.erasing):
            return image
        pixels = image.astype(jnp.int32)
        if config.randaugment:
            pixels = randaugment(
                jax.random.fold_in(key, _RANDAUGMENT),
                pixels,
                num_operations=config.randaugment,
                magnitude=config.randaugment_magnitude,
                magnitude_std=config.randaugment_magnitude_std,
                fill=color,
            )
        if config.color_jitter:
            pixels = jitter(jax.random.fold_in(key, _JITTER), pixels, strength=config.color_jitter)
        if config.erasing:
            pixels = erase(jax.random.fold_in(key, _ERASING), pixels, probability=config.erasing, fill=color)
        return pixels.astype(jnp.uint8)

    augmented = jax.vmap(augment_one)(keys, images)
    if not (config.mixup or config.cutmix):
        return Augmented(augmented, labels)
    mixture_keys = jax.vmap(lambda key: jax.random.fold_in(key, _MIXTURE))(keys)
    targets = jax.nn.one_hot(labels, num_classes, dtype=jnp.float32)
    return Augmented(*mix(mixture_keys, augmented, targets, config))
