"""From pixels to tokens: normalised patches, a linear lift, positions."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from ctt.config.schema import DataConfig
from ctt.typing import Array, Float, Images, Tokens


def normalize_pixels(images: Images, data: DataConfig, dtype: jnp.dtype) -> Float[Array, "batch height width channels"]:
    """Return ``(pixels / 255 - mean) / std``.

    Args:
        images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
        data: a resolved data config, for mean and standard deviation of each channel.
        dtype: type of the result.
    """
    mean, std = np.asarray(data.mean), np.asarray(data.std)
    wide = images.astype(jnp.promote_types(dtype, jnp.float32))
    scale, shift = jnp.asarray(1 / (255 * std), wide.dtype), jnp.asarray(-mean / std, wide.dtype)
    return (wide * scale + shift).astype(dtype)


def cut_patches(images: Float[Array, "batch height width channels"], patch_size: int) -> Tokens:
    """Return the square patches of each image, row by row, each flattened row by row.

    A linear map of these is a convolution with a stride equal to its kernel's side.

    Args:
        images: `[batch, height, width, channels]`; `patch_size` divides height and width.
        patch_size: side of a patch [pixels].

    Returns:
        `[batch, (height / p) * (width / p), p * p * channels]`.
    """
    batch, height, width, channels = images.shape
    rows, columns = height // patch_size, width // patch_size
    tiles = images.reshape(batch, rows, patch_size, columns, patch_size, channels)
    return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * columns, patch_size**2 * channels)


def sincos_positions(rows: int, columns: int, width: int) -> Float[np.ndarray, "tokens width"]:
    """Return fixed 2-D sine and cosine position embeddings, row by row.

    The first half of the features encodes the row and the second half the column, each as
    sines then cosines of ``position / 10000^(2 i / (width / 2))``.

    Args:
        rows: tokens along the height.
        columns: tokens along the width.
        width: features, a multiple of 4.

    References:
        Chen, Xie and He, "An Empirical Study of Training Self-Supervised Vision Transformers" (2021).
    """
    frequencies = 10000.0 ** (-np.arange(width // 4) / (width // 4))

    def encode(positions: np.ndarray) -> np.ndarray:
        angles = positions.reshape(-1, 1) * frequencies
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    return np.concatenate([encode(row), encode(column)], axis=1)


class PatchLift(nnx.Module):
    """``u(., ., 0) = patches W + b + positions``, with a class token in front if asked for.

    References:
        Dosovitskiy et al., arXiv:2010.11929, equation (1).
    """

    def __init__(
        self,
        data: DataConfig,
        *,
        patch_size: int,
        width: int,
        position: str,
        has_class_token: bool,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the lift.

        Args:
            data: a resolved data config.
            patch_size: side of a patch [pixels].
            width: features of a token.
            position: ``learned`` or ``sincos``.
            has_class_token: whether a learned token stands before the patches.
            dtype: type of the state.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights.
        """
        assert data.image_shape is not None  # The config is resolved.
        height, image_width, channels = data.image_shape
        self.data, self.patch_size, self.width, self.position = data, patch_size, width, position
        self.dtype = dtype
        self.grid = (height // patch_size, image_width // patch_size)
        self.linear = nnx.Linear(
            patch_size**2 * channels,
            width,
            kernel_init=nnx.initializers.xavier_uniform(),
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        draw = nnx.initializers.truncated_normal(0.02)
        num_tokens = self.grid[0] * self.grid[1] + has_class_token
        self.class_token = nnx.Param(draw(rngs.params(), (width,), param_dtype)) if has_class_token else None
        is_learned = position == "learned"
        self.positions = nnx.Param(draw(rngs.params(), (num_tokens, width), param_dtype)) if is_learned else None

    def __call__(self, images: Images) -> Tokens:
        """Return the initial state `[batch, tokens, width]`.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
        """
        pixels = normalize_pixels(images, self.data, self.dtype)
        tokens = self.linear(cut_patches(pixels, self.patch_size))
        if self.positions is None:
            tokens = tokens + jnp.asarray(sincos_positions(*self.grid, self.width), tokens.dtype)
        if self.class_token is not None:
            token = jnp.broadcast_to(self.class_token[...].astype(tokens.dtype), (tokens.shape[0], 1, self.width))
            tokens = jnp.concatenate([token, tokens], axis=1)
        if self.positions is not None:
            tokens = tokens + self.positions[...].astype(tokens.dtype)
        return tokens
