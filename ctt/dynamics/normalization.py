"""Layer normalisation as the projection onto S1 = {u : mean_y u = s1, var_y u = s2^2}."""

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.name import AffineName
from ctt.dynamics.precision import lift_precision
from ctt.typing import Time, Tokens


def project_to_s1(u: Tokens, eps: float) -> Tokens:
    """Project each token onto S1(0, 1): mean zero and variance one over its features.

    ``(u - mean_y u) / sqrt(var_y u + eps)``. With ``eps = 0`` this is the nearest point of the
    set (undefined for a token whose features are all equal); ``eps > 0`` regularises that case.
    The variance is the mean of the squared centred features (two passes), so it is never negative.

    Args:
        u: state `[..., width]`; bfloat16 is normalised in float32.
        eps: added to the variance, >= 0.

    Returns:
        An array of the shape and type of `u`.

    References:
        arXiv:2510.03989, Theorem 3.1 and equation (3.7).
    """
    wide = lift_precision(u)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + eps)).astype(u.dtype)


class Normalization(nnx.Module):
    """The projection onto S1(0, 1), followed by an affine map if asked for.

    With affine kind ``elementwise`` this is layer normalisation of Ba et al. (2016): the projection
    and then a diagonal affine map, which is not idempotent. With ``none`` it is the projection alone.
    """

    def __init__(self, width: int, *, affine: AffineName, eps: float, param_dtype: jnp.dtype, rngs: nnx.Rngs):
        """Create the normalisation.

        Args:
            width: number of features.
            affine: ``elementwise`` or ``none``.
            eps: added to the variance, >= 0.
            param_dtype: type of scale and bias.
            rngs: unused randomness, accepted so that all parts are built alike.
        """
        del rngs
        self.eps = eps
        has_affine = affine == "elementwise"
        self.scale = nnx.Param(jnp.ones((width,), param_dtype)) if has_affine else None
        self.bias = nnx.Param(jnp.zeros((width,), param_dtype)) if has_affine else None

    def project(self, t: Time, u: Tokens) -> Tokens:
        """Return the normalised state.

        Args:
            t: time, unused: the set does not move.
            u: state `[..., tokens, width]`.
        """
        del t
        v = project_to_s1(u, self.eps)
        if self.scale is None or self.bias is None:
            return v
        wide = lift_precision(v)
        return (wide * self.scale[...] + self.bias[...]).astype(u.dtype)
