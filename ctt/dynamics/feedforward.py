"""The feed-forward network as a vector field: the local integral III of the continuous Transformer."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.name import ActivationName
from ctt.typing import Array, Time, Tokens

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
}
"""Activations by name. ReLU is the projection onto S2 = {u : u >= 0}."""

_kernel_init = nnx.initializers.truncated_normal(0.02)


class FeedForward(nnx.Module):
    """``F(u) = act(u W1 + b1) W2 + b2``, on each token by itself.

    References:
        MATH.md section 4, the residual form of arXiv:2510.03989, equations (3.7) to (3.9).
    """

    def __init__(
        self,
        width: int,
        hidden_width: int,
        *,
        activation: ActivationName,
        use_bias: bool,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the two linear maps.

        Args:
            width: features of a token.
            hidden_width: hidden features.
            activation: name of the activation between the maps.
            use_bias: whether both maps have a bias.
            dtype: type of the computation.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights (stream ``params``).
        """

        def linear(num_in: int, num_out: int) -> nnx.Linear:
            return nnx.Linear(
                num_in,
                num_out,
                use_bias=use_bias,
                kernel_init=_kernel_init,
                dtype=dtype,
                param_dtype=param_dtype,
                rngs=rngs,
            )

        self.activation = activation
        self.expand = linear(width, hidden_width)
        self.contract = linear(hidden_width, width)

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``F(u)``.

        Args:
            t: time, unused: the controls are frozen.
            u: state `[..., tokens, width]`.
        """
        del t
        return self.contract(ACTIVATIONS[self.activation](self.expand(u)))
