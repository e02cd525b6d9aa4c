"""Normalisation as a constraint: the projection onto a set, onto its tangent space, and back to it.

Two sets of states, each a condition on every token by itself:

* ``S1(s1, s2) = {u : mean_y u = s1, var_y u = s2^2}``; its projection is layer normalisation.
* the sphere ``{u : mean_y u^2 = s2^2}``; its projection is RMS normalisation.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.name import AffineName, ConstraintName
from ctt.dynamics.precision import lift_precision
from ctt.typing import Array, Float, Time, Tokens

Weights = Float[Array, " width"] | None
"""Quadrature weights over the features; None: a uniform mesh."""


def average(u: Array, weights: Weights = None) -> Array:
    """Return the mean over the features, kept as an axis of length 1.

    Args:
        u: `[..., width]`.
        weights: quadrature weights `[width]` of a feature mesh; None: all alike.
    """
    if weights is None:
        return jnp.mean(u, axis=-1, keepdims=True)
    share = jnp.asarray(weights, u.dtype) / jnp.sum(jnp.asarray(weights, u.dtype))
    return jnp.sum(u * share, axis=-1, keepdims=True)


def project_to_s1(u: Tokens, eps: float, weights: Weights = None) -> Tokens:
    """Project each token onto S1(0, 1): mean zero and variance one over its features.

    ``(u - mean_y u) / sqrt(var_y u + eps)``. With ``eps = 0`` this is the nearest point of the
    set (undefined for a token whose features are all equal); ``eps > 0`` regularises that case.
    The variance is the mean of the squared centred features (two passes), so it is never negative.

    Args:
        u: state `[..., width]`; bfloat16 is normalised in float32.
        eps: added to the variance, >= 0.
        weights: quadrature weights `[width]` of a feature mesh; None: all alike.

    Returns:
        An array of the shape and type of `u`.

    References:
        arXiv:2510.03989, Theorem 3.1 and equation (3.7).
    """
    wide = lift_precision(u)
    centred = wide - average(wide, weights)
    variance = average(jnp.square(centred), weights)
    return (centred * jax.lax.rsqrt(variance + eps)).astype(u.dtype)


def project_to_sphere(u: Tokens, eps: float, weights: Weights = None) -> Tokens:
    """Project each token onto the sphere ``mean_y u^2 = 1``: RMS normalisation.

    ``u / sqrt(mean_y u^2 + eps)``; with ``eps = 0`` the nearest point of the sphere, undefined at zero.

    Args:
        u: state `[..., width]`; bfloat16 is normalised in float32.
        eps: added to the mean square, >= 0.
        weights: quadrature weights `[width]` of a feature mesh; None: all alike.

    Returns:
        An array of the shape and type of `u`.

    References:
        Zhang and Sennrich, arXiv:1910.07467, equation (4).
    """
    wide = lift_precision(u)
    return (wide * jax.lax.rsqrt(average(jnp.square(wide), weights) + eps)).astype(u.dtype)


def project_to_tangent(
    u: Tokens, v: Tokens, eps: float, *, constraint: ConstraintName = "s1", weights: Weights = None
) -> Tokens:
    """Return ``Pi_u v``, the part of `v` that is tangent at `u` to the set of its own mean and size through `u`.

    For S1 that is `v` without its mean and without its component along the centred `u`; for the sphere
    without its component along `u`.

    Args:
        u: a state `[..., width]`, on the set or near it.
        v: a direction `[..., width]`.
        eps: floor of the squared size of `u`, >= 0, which regularises constant tokens and nothing else.
        constraint: ``s1`` or ``sphere``.
        weights: quadrature weights `[width]` of a feature mesh; None: all alike.

    Returns:
        An array of the shape and type of `v`.

    References:
        MATH.md section 4, placement `tangent`.
    """
    point, direction = lift_precision(u), lift_precision(v)
    if constraint == "s1":
        point = point - average(point, weights)
        direction = direction - average(direction, weights)
    size = jnp.maximum(average(jnp.square(point), weights), eps)
    return (direction - point * (average(point * direction, weights) / size)).astype(v.dtype)


def retract(u: Tokens, eps: float, *, constraint: ConstraintName = "s1", weights: Weights = None) -> Tokens:
    """Return the nearest point of S1(0, 1) or of the unit sphere, wherever the squared size of `u` is above `eps`.

    Unlike `project_to_s1`, which adds `eps` to the variance and so is off the set by a relative
    ``eps / 2``, this has `eps` as a floor: it is idempotent, as a retraction must be.

    Args:
        u: a state `[..., width]`.
        eps: floor of the variance (of the mean square for the sphere), >= 0.
        constraint: ``s1`` or ``sphere``.
        weights: quadrature weights `[width]` of a feature mesh; None: all alike.

    Returns:
        An array of the shape and type of `u`.
    """
    point = lift_precision(u)
    point = point - average(point, weights) if constraint == "s1" else point
    size = jnp.maximum(average(jnp.square(point), weights), eps)
    return (point * jax.lax.rsqrt(size)).astype(u.dtype)


class Normalization(nnx.Module):
    """The projection onto a constraint set, in one of three affine kinds.

    * ``none``: the projection onto S1(0, 1), or onto the unit sphere.
    * ``scalar``: the projection onto the moving set S1(s1(t), s2(t)) of the paper (the sphere of radius s2(t)):
      two learnable numbers, with ``s2 = exp(log_scale) > 0``. It is idempotent for ``eps = 0``.
    * ``elementwise``: layer normalisation of Ba et al. (2016): the projection onto S1(0, 1) and then a scale
      and a shift a feature (a scale alone for the sphere). It is no projection: it is not idempotent.
    """

    def __init__(
        self,
        width: int,
        *,
        affine: AffineName,
        eps: float,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
        constraint: ConstraintName = "s1",
    ):
        """Create the normalisation.

        Args:
            width: number of features.
            affine: ``elementwise``, ``scalar`` or ``none``.
            eps: added to the variance, >= 0.
            param_dtype: type of the parameters.
            rngs: unused randomness, accepted so that all parts are built alike.
            constraint: ``s1`` or ``sphere``.
        """
        del rngs
        self.eps = eps
        self.constraint: ConstraintName = constraint
        has_mean = constraint == "s1"
        is_elementwise, is_scalar = affine == "elementwise", affine == "scalar"
        self.scale = nnx.Param(jnp.ones((width,), param_dtype)) if is_elementwise else None
        self.bias = nnx.Param(jnp.zeros((width,), param_dtype)) if is_elementwise and has_mean else None
        self.log_scale = nnx.Param(jnp.zeros((), param_dtype)) if is_scalar else None
        self.shift = nnx.Param(jnp.zeros((), param_dtype)) if is_scalar and has_mean else None

    def project(self, t: Time, u: Tokens) -> Tokens:
        """Return the normalised state.

        Args:
            t: time, unused: the controls are frozen.
            u: state `[..., tokens, width]`.
        """
        del t
        v = project_to_s1(u, self.eps) if self.constraint == "s1" else project_to_sphere(u, self.eps)
        if self.scale is None:
            return self.leave_frame(v)
        wide = lift_precision(v) * self.scale[...]
        return (wide if self.bias is None else wide + self.bias[...]).astype(u.dtype)

    def leave_frame(self, v: Tokens) -> Tokens:
        """Return ``s1 + s2 v``: the state from its moving frame, where the set is S1(0, 1) at all times.

        Args:
            v: state `[..., tokens, width]` in the frame.

        References:
            MATH.md section 1, moving constraint sets.
        """
        if self.log_scale is None:
            return v
        wide = lift_precision(v) * jnp.exp(self.log_scale[...])
        return (wide if self.shift is None else wide + self.shift[...]).astype(v.dtype)

    def enter_frame(self, du: Tokens) -> Tokens:
        """Return ``du / s2``: a rate of change of the state, as seen from the moving frame.

        Args:
            du: a rate of change `[..., tokens, width]`.
        """
        if self.log_scale is None:
            return du
        return (lift_precision(du) * jnp.exp(-self.log_scale[...])).astype(du.dtype)

    def tangent(self, v: Tokens, dv: Tokens) -> Tokens:
        """Return the part of a rate of change that is tangent to the set, in the moving frame.

        Args:
            v: state `[..., tokens, width]` in the frame.
            dv: a rate of change `[..., tokens, width]` in the frame.
        """
        return project_to_tangent(v, dv, self.eps, constraint=self.constraint)

    def retract(self, v: Tokens) -> Tokens:
        """Return the state brought back to the set, in the moving frame.

        Args:
            v: state `[..., tokens, width]` in the frame, near the set.
        """
        return retract(v, self.eps, constraint=self.constraint)
