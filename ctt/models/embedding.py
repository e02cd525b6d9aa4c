"""From a mesh of tokens (or pixels) to the coarser mesh of the next stage: a strided, overlapping convolution."""

import jax.numpy as jnp
from flax import nnx

from ctt.dynamics.normalization import Normalization
from ctt.typing import Array, Float, Tokens


class ConvolutionalEmbedding(nnx.Module):
    """A convolution, then layer normalisation of each token.

    References:
        Wu et al., "CvT", arXiv:2103.15808, section 3.1.
    """

    def __init__(
        self,
        num_in: int,
        width: int,
        *,
        kernel: int,
        stride: int,
        padding: int,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the convolution and the normalisation.

        Args:
            num_in: channels of the image, or features of the stage before.
            width: features of a token.
            kernel: side of the kernel.
            stride: stride of the kernel.
            padding: zeros around the mesh.
            dtype: type of the state.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights (stream ``params``).
        """
        self.convolution = nnx.Conv(
            num_in,
            width,
            (kernel, kernel),
            strides=stride,
            padding=padding,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        # The published eps, whatever that of the right-hand side.
        self.normalization = Normalization(width, affine="elementwise", eps=1e-5, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, mesh: Float[Array, "batch rows columns features"]) -> Tokens:
        """Return the tokens of the coarser mesh, row by row, `[batch, tokens, width]`.

        Args:
            mesh: `[batch, rows, columns, features]`.
        """
        tokens = self.convolution(mesh)
        return self.normalization.project(0.0, tokens.reshape(tokens.shape[0], -1, tokens.shape[-1]))
