"""Mixup and cutmix: an example becomes a mixture of two, and its label their shares."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.special import betaincinv

from ctt.config.schema import AugmentationConfig
from ctt.data.augment.draw import below, bin_centers, draw, happens, pick
from ctt.data.augment.occlusion import rectangle

_BITS = 12  # Shares of mixup are multiples of 2^-12, so that products with pixels are exact.


def mix(
    keys: Key[Array, " batch"],
    images: Int[Array, "batch height width channels"],
    targets: Float[Array, "batch classes"],
    config: AugmentationConfig,
) -> tuple[Float[Array, "batch height width channels"], Float[Array, "batch classes"]]:
    """Mix every example with its partner, that at the mirrored place of the batch.

    Mixup returns ``lam x + (1 - lam) x'``; cutmix pastes a rectangle of x' whose centre is uniform and whose sides are
    ``sqrt(1 - lam)`` of the image's, cut at the border. The targets are mixed by ``lam``, after cutmix by the share of
    the pixels that is left. The example in the middle of a batch of odd size is its own partner.

    Args:
        keys: one key an example `[batch]`: each draws a share, and whether to mix, by itself.
        images: pixels `[batch, height, width, channels]`, 0 to 255.
        targets: shares of the classes `[batch, classes]`.
        config: `mixup` and `cutmix` are the concentrations of Beta(a, a), from which lam is drawn; 0: off.

    References:
        Zhang et al., arXiv:1710.09412, equation (1); Yun et al., arXiv:1905.04899, section 3; timm's mode ``elem``.
    """
    height, width = images.shape[1:3]
    cutmix_share = config.cutmix_share if config.mixup and config.cutmix else float(bool(config.cutmix))
    mixup_shares = np.round(_shares(config.mixup) * 2**_BITS).astype(np.float32) / 2**_BITS
    sides = np.sqrt(1 - _shares(config.cutmix))[:, None] * np.array([height, width])
    halves = np.floor(sides).astype(np.int32) // 2

    def draw_shares(key: Key[Array, ""]) -> tuple[Array, Array]:
        """Return the share of x of each pixel `[height, width]`, and of the target."""
        which, whether, mixup, cutmix, row, column = draw(key, 6)
        share, half = pick(mixup, mixup_shares), pick(cutmix, halves)
        row, column = below(row, height), below(column, width)
        top, bottom = jnp.maximum(row - half[0], 0), jnp.minimum(row + half[0], height)
        left, right = jnp.maximum(column - half[1], 0), jnp.minimum(column + half[1], width)
        pasted = rectangle(height, width, top=top, bottom=bottom, left=left, right=right)
        num_kept = height * width - (bottom - top) * (right - left)
        kept = num_kept.astype(jnp.float32) * np.float32(1 / (height * width))
        is_cutmix, is_mixed = happens(which, cutmix_share), happens(whether, config.mix_probability)
        pixels = jnp.where(is_cutmix, jnp.where(pasted, jnp.float32(0), jnp.float32(1)), share)
        target = jnp.where(is_cutmix, kept, share)
        return jnp.where(is_mixed, pixels, 1), jnp.where(is_mixed, target, 1)

    pixel_shares, target_shares = jax.vmap(draw_shares)(keys)
    pixel_shares, target_shares = pixel_shares[..., None], target_shares[:, None]
    pixels = images.astype(jnp.float32)
    mixed = pixel_shares * pixels + (1 - pixel_shares) * pixels[::-1]
    return mixed, target_shares * targets + (1 - target_shares) * targets[::-1]


def _shares(concentration: float) -> np.ndarray:
    """Return the quantiles of Beta(a, a) `[bins]`, or ones if a is 0."""
    centers = bin_centers()
    return betaincinv(concentration, concentration, centers) if concentration else np.ones_like(centers)
