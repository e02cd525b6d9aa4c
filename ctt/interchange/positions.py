"""Learned position embeddings on another mesh of patches."""

import jax
import jax.numpy as jnp

from ctt.typing import Array, Float


def interpolate_positions(
    positions: Float[Array, "tokens width"],
    grid: tuple[int, int],
    new_grid: tuple[int, int],
    *,
    num_prefix_tokens: int,
) -> Float[Array, "new_tokens width"]:
    """Return position embeddings interpolated to another mesh, those of tokens without a place unchanged.

    Keys' cubic convolution (a = -0.5) of patch centres, without antialiasing; beyond the border the kernel is
    renormalised. PyTorch's ``interpolate(mode="bicubic", align_corners=False)``, which transformers calls, has the
    same centres, but a = -0.75 and the border repeated. With ``antialias=True``, which timm adds, it is equal to this
    on a finer mesh, and smooths on a coarser one.

    Args:
        positions: `[prefix + rows * columns, width]`.
        grid: rows and columns of the patches.
        new_grid: those of the result.
        num_prefix_tokens: tokens before the patches.

    References:
        Keys, IEEE Trans. ASSP 29 (1981), equation (15).
    """
    prefix, mesh = positions[:num_prefix_tokens], positions[num_prefix_tokens:]
    width = positions.shape[-1]
    resized = jax.image.resize(mesh.reshape(*grid, width), (*new_grid, width), method="cubic", antialias=False)
    return jnp.concatenate([prefix, resized.reshape(-1, width)])
