"""Attention whose kernels are translation invariant: query, key and value are convolutions over a mesh of tokens."""

from collections.abc import Collection
from typing import Any

import jax.numpy as jnp
from flax import nnx

from ctt.config.name import AttentionBiasName, ConvolutionNormalizationName
from ctt.dynamics.attention import attend, merge_heads, split_heads
from ctt.typing import Array, Float, Time, Tokens

_kernel_init = nnx.initializers.truncated_normal(0.02)
_depthwise_init = nnx.initializers.variance_scaling(1.0, "fan_in", "uniform", in_axis=(0, 1), out_axis=2, batch_axis=())


def convolve_depthwise(
    u: Float[Array, "*batch rows columns width"],
    kernel: Float[Array, "side side width"],
    *,
    stride: int = 1,
    padding: int = 0,
) -> Float[Array, "*batch new_rows new_columns width"]:
    """Convolve each feature with a kernel of its own: the integral over Omega_x against ``W(x - xi)``.

    A sum of shifted copies, one a place of the kernel, which compilers fuse: on a CPU five to twenty times as fast
    as XLA's grouped convolution (RESULTS.md).

    Args:
        u: `[..., rows, columns, width]`.
        kernel: `[side, side, width]`; entry (i, j) meets the token i rows below and j columns right of the corner.
        stride: tokens between the centres of neighbouring results.
        padding: zeros on either side of both axes.

    Returns:
        `[..., new_rows, new_columns, width]` with ``new_rows = (rows + 2 padding - side) // stride + 1``.
    """
    side, (rows, columns) = kernel.shape[0], u.shape[-3:-1]
    frame = [(0, 0)] * (u.ndim - 3) + [(padding, padding), (padding, padding), (0, 0)]
    padded = jnp.pad(u, frame)
    new_rows = (rows + 2 * padding - side) // stride + 1
    new_columns = (columns + 2 * padding - side) // stride + 1
    total = jnp.zeros((), u.dtype)
    for i in range(side):
        for j in range(side):
            shifted = padded[
                ...,
                i : i + stride * (new_rows - 1) + 1 : stride,
                j : j + stride * (new_columns - 1) + 1 : stride,
                :,
            ]
            total = total + shifted * kernel[i, j]
    return total


class DepthwiseConvolution(nnx.Module):
    """A learnable `convolve_depthwise`."""

    def __init__(
        self,
        width: int,
        *,
        side: int,
        stride: int,
        padding: int,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Draw the kernel.

        Args:
            width: features of a token.
            side: side of the kernel [tokens].
            stride: tokens between neighbouring results.
            padding: zeros on either side.
            dtype: type of the computation.
            param_dtype: type of the kernel.
            rngs: randomness of the initial weights (stream ``params``).
        """
        self.stride, self.padding, self.dtype = stride, padding, dtype
        self.kernel = nnx.Param(_depthwise_init(rngs.params(), (side, side, width), param_dtype))

    def __call__(self, u: Float[Array, "*batch rows columns width"]) -> Float[Array, "*batch rows columns width"]:
        """Return the convolution.

        Args:
            u: `[..., rows, columns, width]`.
        """
        kernel = self.kernel[...].astype(self.dtype)
        return convolve_depthwise(u.astype(self.dtype), kernel, stride=self.stride, padding=self.padding)


class ConvolutionalProjection(nnx.Module):
    """A depthwise-separable convolution: a depthwise one, a normalisation, a linear map of the features.

    Tokens that have no place on the mesh (the class token) meet the linear map alone.
    """

    def __init__(
        self,
        width: int,
        grid: tuple[int, int],
        *,
        side: int,
        stride: int,
        padding: int,
        normalization: ConvolutionNormalizationName,
        use_bias: bool,
        num_prefix_tokens: int,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the two parts and the normalisation between them.

        Args:
            width: features of a token.
            grid: rows and columns of the mesh.
            side: side of the depthwise kernel [tokens].
            stride: tokens between neighbouring results.
            padding: zeros on either side.
            normalization: ``batch`` (over all images and tokens, with running averages), ``layer`` or ``none``.
            use_bias: whether the linear map has a bias.
            num_prefix_tokens: tokens before those of the mesh.
            dtype: type of the computation.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights (stream ``params``).
        """
        types = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.grid, self.num_prefix_tokens = grid, num_prefix_tokens
        self.depthwise = DepthwiseConvolution(width, side=side, stride=stride, padding=padding, **types)
        self.normalization = _normalize_mesh(normalization, width, **types)
        self.linear = nnx.Linear(width, width, use_bias=use_bias, kernel_init=_kernel_init, **types)

    def __call__(self, u: Tokens) -> Tokens:
        """Return the projected tokens, those of the (coarser) mesh after those without a place.

        Args:
            u: state `[..., prefix + rows * columns, width]`.
        """
        prefix, mesh = u[..., : self.num_prefix_tokens, :], u[..., self.num_prefix_tokens :, :]
        field = self.depthwise(mesh.reshape(*mesh.shape[:-2], *self.grid, mesh.shape[-1]))
        if self.normalization is not None:
            field = self.normalization(field)
        tokens = field.reshape(*field.shape[:-3], -1, field.shape[-1])
        if self.num_prefix_tokens:
            tokens = jnp.concatenate([prefix.astype(tokens.dtype), tokens], axis=-2)
        return self.linear(tokens)


def _normalize_mesh(
    name: ConvolutionNormalizationName, width: int, **types: Any
) -> nnx.BatchNorm | nnx.LayerNorm | None:
    common = {"epsilon": 1e-5, "use_fast_variance": False, **types}
    if name == "batch":
        # In evaluation a fixed affine map; `Module.train()` and `.eval()` switch it.
        norm = nnx.BatchNorm(width, momentum=0.9, use_running_average=True, **common)
        # The library keeps its averages in float32 at any precision.
        norm.mean = nnx.BatchStat(jnp.zeros((width,), types["param_dtype"]))
        norm.var = nnx.BatchStat(jnp.ones((width,), types["param_dtype"]))
        return norm
    return nnx.LayerNorm(width, **common) if name == "layer" else None


class ConvolutionalAttention(nnx.Module):
    """Self-attention whose query, key and value are depthwise-separable convolutions over the 2-D mesh of tokens.

    Keys and values may be taken on a coarser mesh (a stride): the integral over Omega_x by fewer nodes.

    References:
        Wu et al., "CvT", arXiv:2103.15808, section 3.2; arXiv:2510.03989, section 5, kernels ``W(x - xi)``.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        grid: tuple[int, int],
        *,
        side: int,
        key_value_stride: int,
        key_value_padding: int,
        normalization: ConvolutionNormalizationName,
        biases: Collection[AttentionBiasName],
        scale: float,
        num_prefix_tokens: int,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the four projections.

        Args:
            width: features of a token; a multiple of `num_heads`.
            num_heads: number of heads.
            grid: rows and columns of the mesh of tokens.
            side: side of the depthwise kernels [tokens], odd.
            key_value_stride: stride of key and value.
            key_value_padding: zeros around the mesh that key and value see.
            normalization: see `ConvolutionalProjection`.
            biases: which of ``query``, ``key``, ``value``, ``output`` have a bias.
            scale: factor of the scores.
            num_prefix_tokens: tokens before those of the mesh.
            dtype: type of the computation.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights (stream ``params``).
        """
        types = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}

        def project(name: AttentionBiasName, stride: int, padding: int) -> ConvolutionalProjection:
            return ConvolutionalProjection(
                width,
                grid,
                side=side,
                stride=stride,
                padding=padding,
                normalization=normalization,
                use_bias=name in biases,
                num_prefix_tokens=num_prefix_tokens,
                **types,
            )

        self.num_heads, self.scale = num_heads, scale
        self.query = project("query", 1, side // 2)
        self.key = project("key", key_value_stride, key_value_padding)
        self.value = project("value", key_value_stride, key_value_padding)
        self.output = nnx.Linear(width, width, use_bias="output" in biases, kernel_init=_kernel_init, **types)

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return the attention of the convolved tokens.

        Args:
            t: time, unused: the controls are frozen.
            u: state `[..., prefix + rows * columns, width]`.

        Returns:
            An array of the shape of `u`. The softmax is computed in at least float32.
        """
        del t
        query, key, value = (split_heads(project(u), self.num_heads) for project in (self.query, self.key, self.value))
        return self.output(merge_heads(attend(query, key, value, scale=self.scale)))
