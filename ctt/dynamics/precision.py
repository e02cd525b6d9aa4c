"""Float32 islands: where a bfloat16 state must not be trusted."""

import jax.numpy as jnp

from ctt.typing import Array


def lift_precision(x: Array) -> Array:
    """Return `x` in float32, or unchanged if it is float32 or wider.

    Softmax, normalisation and loss are computed on lifted arrays and cast back.

    Args:
        x: an array of any floating type.

    Example:
        >>> lift_precision(jnp.ones(2, jnp.bfloat16)).dtype
        dtype('float32')
    """
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
