"""Mixup and cutmix: an example becomes a mixture of two, and its label their shares."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ctt.config.schema import AugmentationConfig
from ctt.data.augment.occlusion import rectangle


def mix(
    keys: Key[Array, " batch"],
    images: Float[Array, "batch height width channels"],
    targets: Float[Array, "batch classes"],
    config: AugmentationConfig,
) -> tuple[Float[Array, "batch height width channels"], Float[Array, "batch classes"]]:
    """Mix every example with its partner, that at the mirrored place of the batch.

    Mixup returns ``lam x + (1 - lam) x'``; cutmix pastes a rectangle of x' whose centre is uniform and whose sides are
    ``sqrt(1 - lam)`` of the image's, cut at the border. The targets are mixed by ``lam``, after cutmix by the share of
    the pixels that is left.

    Args:
        keys: one key an example `[batch]`: each draws a share, and whether to mix, by itself.
        images: pixels `[batch, height, width, channels]`, 0 to 255.
        targets: shares of the classes `[batch, classes]`.
        config: `mixup` and `cutmix` are the concentrations of Beta(a, a), from which lam is drawn; 0: off.

    References:
        Zhang et al., arXiv:1710.09412, equation (1); Yun et al., arXiv:1905.04899, section 3; timm's mode ``elem``.
    """
    height, width = images.shape[1:3]

    def draw(key: Key[Array, ""]) -> tuple[Array, Array]:
        """Return the share of x of each pixel `[height, width]`, and of the target."""
        which, whether, mixup_key, cutmix_key, place = jax.random.split(key, 5)
        mixup = jax.random.beta(mixup_key, config.mixup, config.mixup) if config.mixup else jnp.ones(())
        cutmix = jax.random.beta(cutmix_key, config.cutmix, config.cutmix) if config.cutmix else jnp.ones(())
        center = jax.random.uniform(place, (2,)) * jnp.array([height, width])
        half = jnp.sqrt(1 - cutmix) * jnp.array([height, width]) / 2
        top, left = jnp.clip(jnp.round(center - half), 0)
        bottom, right = jnp.minimum(jnp.round(center + half), jnp.array([height, width]))
        kept = 1.0 - rectangle(height, width, top=top, bottom=bottom, left=left, right=right)
        cutmix_share = config.cutmix_share if config.mixup and config.cutmix else float(bool(config.cutmix))
        is_cutmix = jax.random.bernoulli(which, cutmix_share)
        is_mixed = jax.random.bernoulli(whether, config.mix_probability)
        share = jnp.where(is_mixed, jnp.where(is_cutmix, kept, mixup), 1.0)
        return share, jnp.mean(share)

    pixel_shares, target_shares = jax.vmap(draw)(keys)
    pixel_shares, target_shares = pixel_shares[..., None], target_shares[:, None]
    mixed = pixel_shares * images + (1 - pixel_shares) * images[::-1]
    return mixed, target_shares * targets + (1 - target_shares) * targets[::-1]
