"""Dropout of an operator's output, and of an operator as a whole: one mask an operator and step.

The mask is drawn once a step and shared by every stage of a substep, by both halves of a
palindrome and by a recomputation, so that a step with dropout is still one step of one ODE.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.dynamics.operator import Maskable, Operator, is_reversible
from ctt.typing import Array, Float, Key, Time, Tokens


def dropout_masks(
    keys: Key[Array, " batch"], shape: tuple[int, ...], *, rate: float, dtype: jnp.dtype
) -> Float[Array, "batch ..."]:
    """Draw one mask an example, from the example's own key.

    Args:
        keys: one key an example `[batch]`.
        shape: shape of one example's state, such as `(tokens, width)`.
        rate: probability of a zero, in [0, 1).
        dtype: type of the mask.

    Returns:
        `[batch, *shape]`: ``1 / (1 - rate)`` with probability ``1 - rate``, else 0.

    References:
        Srivastava et al., JMLR 15 (2014), in the inverted form.
    """
    keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate, shape))(keys)
    return keep.astype(dtype) / jnp.asarray(1 - rate, dtype)


def depth_masks(
    keys: Key[Array, " batch"], ndim: int, *, rate: float | Array, dtype: jnp.dtype
) -> Float[Array, "batch ..."]:
    """Draw one factor an example, from the example's own key: whether an operator acts in a step.

    Args:
        keys: one key an example `[batch]`.
        ndim: axes of the state, the batch's included.
        rate: probability of a zero, in [0, 1); may be traced.
        dtype: type of the factors.

    Returns:
        `[batch, 1, ..., 1]`: ``1 / (1 - rate)`` with probability ``1 - rate``, else 0.

    References:
        Huang et al., arXiv:1603.09382, equation (2), scaled while training and not afterwards.
    """
    keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate))(keys)
    return (keep / (1 - rate)).astype(dtype).reshape(-1, *[1] * (ndim - 1))


class Masked(nnx.Module):
    """An operator whose field is multiplied by a mask."""

    def __init__(self, operator: Operator, mask: Array):
        """Mask `operator`.

        Args:
            operator: the field.
            mask: factors that broadcast against the state.
        """
        self.operator = operator
        self.mask = nnx.Variable(mask)

    @property
    def is_reversible(self) -> bool:
        """Whether the operator may flow backwards in time."""
        return is_reversible(self.operator)

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``mask * f(t, u)``.

        Args:
            t: time.
            u: state `[..., tokens, width]`.
        """
        return self.mask[...] * self.operator.vector_field(t, u)


def mask_operator(operator: Operator, mask: Array) -> Operator:
    """Return an operator with its field multiplied by a mask.

    Args:
        operator: the operator.
        mask: factors that broadcast against the state.
    """
    return operator.masked(mask) if isinstance(operator, Maskable) else Masked(operator, mask)
