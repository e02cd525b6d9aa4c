"""The literal Lie scheme of the paper as an encoder layer of its own: two constraint sets in one step."""

from collections.abc import Collection

import jax.numpy as jnp
from flax import nnx

from ctt.config.error import InputError
from ctt.config.name import AffineName, AttentionBiasName
from ctt.dynamics.attention import SelfAttention
from ctt.dynamics.normalization import Normalization
from ctt.typing import Array, Float, Tokens

_kernel_init = nnx.initializers.truncated_normal(0.02)


class LiteralLayer(nnx.Module):
    """One step of the scheme (3.5) to (3.10): Lie splitting of all of I, II and III.

    With ``P`` the projection onto S1 (layer normalisation) and J linear layers::

        u1 = u0 + dt Attention(u0)
        u2 = P(u1)                              `opening`
        v0 = u2
        vj = ReLU(v + dt (v Wj + bj))           v the one before, j = 1 .. J - 1: implicit projection onto S2
        vJ = v + dt (v WJ + bJ)                 the last has no projection
        u5 = (vJ + u2) / 2                      relaxation: the skip connection
        u6 = P(u5)                              `closing`, with eps / 4

    At ``dt = 1`` this is exactly the post-norm encoder layer of Vaswani et al. whose feed-forward
    matrices are ``I + Wj`` (`feedforward_matrices`), hence as wide inside as outside:
    ``LN(u2 + FF(u2))`` with ``u2 = LN(u0 + Attention(u0))``. The half of the relaxation is the reason for
    eps / 4, since ``LN_eps(v) = LN_{eps/4}(v / 2)``.

    It is a recovery at ``dt = 1`` and no convergent discretisation: S1(0, 1) and S2 do not meet, so that as
    dt goes to 0 the step does not tend to the identity. It has therefore no vector field and no order.

    References:
        MATH.md section 3; arXiv:2510.03989, equations (3.5) to (3.10); Vaswani et al. (2017), section 3.1.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        num_linear: int = 2,
        biases: Collection[AttentionBiasName],
        use_bias: bool,
        affine: AffineName,
        eps: float,
        is_causal: bool = False,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create attention, linear layers and the two projections.

        Args:
            width: features of a token; a multiple of `num_heads`.
            num_heads: number of heads.
            num_linear: number J of linear layers, >= 1.
            biases: which of ``query``, ``key``, ``value``, ``output`` have a bias.
            use_bias: whether the linear layers have one.
            affine: affine kind of both normalisations.
            eps: added to the variance by the opening normalisation, >= 0; the closing one adds a quarter of it.
            is_causal: whether a token sees itself and those before it alone.
            dtype: type of the computation.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights (stream ``params``).

        Raises:
            InputError: `num_linear` is not positive.
        """
        if num_linear < 1:
            raise InputError(f"`num_linear` must be >= 1, got {num_linear}. Give the number of linear layers.")

        def linear() -> nnx.Linear:
            return nnx.Linear(
                width,
                width,
                use_bias=use_bias,
                kernel_init=_kernel_init,
                dtype=dtype,
                param_dtype=param_dtype,
                rngs=rngs,
            )

        self.attention = SelfAttention(
            width,
            num_heads,
            biases=biases,
            is_causal=is_causal,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        self.opening = Normalization(width, affine=affine, eps=eps, param_dtype=param_dtype, rngs=rngs)
        self.linears = nnx.List([linear() for _ in range(num_linear)])
        self.closing = Normalization(width, affine=affine, eps=eps / 4, param_dtype=param_dtype, rngs=rngs)

    def step(self, u: Tokens, dt: float) -> Tokens:
        """Return the state after one step of the scheme.

        Args:
            u: state `[..., tokens, width]`.
            dt: the step, a plain number; must be 1.

        Raises:
            InputError: `dt` is not 1.
        """
        if dt != 1:
            raise InputError(
                f"The literal scheme must have time steps of 1, got {dt}: it recovers the Transformer at dt = 1 alone "
                "and does not tend to the identity as dt goes to 0. Set the horizon to the number of steps, or use the "
                "scheme lie with the placement post, pre or tangent."
            )
        return advance_literally(self, u, dt)

    def feedforward_matrices(self) -> list[Float[Array, "width width"]]:
        """Return ``I + Wj``, in order: the feed-forward matrices of the Transformer that this layer equals.

        That Transformer's biases are those of `linears`, its attention is `attention`, and its two layer
        normalisations are `opening` and, with four times its eps, `closing`.
        """
        kernels = [linear.kernel[...] for linear in self.linears]
        return [jnp.eye(kernel.shape[0], dtype=kernel.dtype) + kernel for kernel in kernels]


def advance_literally(layer: LiteralLayer, u: Tokens, dt: float) -> Tokens:
    """Return (3.5) to (3.10) for any step: what `LiteralLayer.step` does at ``dt = 1``, to study other steps.

    Args:
        layer: the weights.
        u: state `[..., tokens, width]`.
        dt: the step, > 0.
    """
    *hidden, last = layer.linears
    u2 = layer.opening.project(0.0, u + dt * layer.attention.vector_field(0.0, u))
    v = u2
    for linear in hidden:
        v = jnp.maximum(v + dt * linear(v), 0)
    v = v + dt * last(v)
    return layer.closing.project(0.0, (v + u2) / 2)
