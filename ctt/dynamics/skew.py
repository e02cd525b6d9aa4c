"""Rotation of the features: a linear operator that keeps every token's norm, with a flow of its own."""

import math
from typing import ClassVar, Literal, get_args

import jax.numpy as jnp
import jax.scipy.linalg
from flax import nnx
from jax.lax import Precision

from ctt.config.error import InputError, suggest
from ctt.dynamics.precision import lift_precision
from ctt.typing import Array, Float, Time, Tokens

SkewFlowName = Literal["exponential", "cayley"]

_kernel_init = nnx.initializers.truncated_normal(0.02)


class SkewMixing(nnx.Module):
    """``u_t = u S`` with ``S = B - B^T``: the features of a token rotate, and its norm stays.

    The flow over a time h is ``u exp(h S)``, or by the Cayley transform ``u (I - h S / 2)^{-1} (I + h S / 2)``,
    an approximation of order 2. Both matrices are orthogonal, and the flow back is the inverse of the flow.

    Attributes:
        is_reversible: True: the flow is defined in both directions of time.
        kernel: the matrix ``B``, `[width, width]`.

    References:
        Hairer, Lubich and Wanner, "Geometric Numerical Integration" (2006), section IV.8.3.
    """

    is_reversible: ClassVar[bool] = True

    def __init__(
        self,
        width: int,
        *,
        method: SkewFlowName = "exponential",
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the matrix.

        Args:
            width: features of a token.
            method: how the flow is computed: ``exponential`` (exact) or ``cayley`` (order 2, one linear solve).
            dtype: type of the product of state and matrix; the matrix is computed in at least float32.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights (stream ``params``).

        Raises:
            InputError: `method` is unknown.
        """
        known = get_args(SkewFlowName)
        if method not in known:
            raise InputError(f"`method` must be a way to compute the flow, got {method!r}: {suggest(method, known)}.")
        self.method: SkewFlowName = method
        self.dtype = dtype
        self.kernel = nnx.Param(_kernel_init(rngs.params(), (width, width), param_dtype))

    @property
    def flow_order(self) -> float:
        """The order of `flow`: infinity where it is exact."""
        return math.inf if self.method == "exponential" else 2

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``u S``.

        Args:
            t: time, unused: the controls are frozen.
            u: state `[..., tokens, width]`.
        """
        del t
        return self._multiply(u, self._generator())

    def flow(self, u: Tokens, t0: Time, t1: Time) -> Tokens:
        """Return the solution at `t1` from `u` at `t0`, exactly or by the Cayley transform.

        Args:
            u: state `[..., tokens, width]`.
            t0: time of `u`; may be traced.
            t1: time of the result, before or after `t0`; may be traced.
        """
        generator = self._generator()
        angle = jnp.asarray(t1 - t0, generator.dtype) * generator
        if self.method == "exponential":
            return self._multiply(u, jax.scipy.linalg.expm(angle))
        identity = jnp.eye(angle.shape[0], dtype=angle.dtype)
        return self._multiply(u, jnp.linalg.solve(identity - angle / 2, identity + angle / 2))

    def _generator(self) -> Float[Array, "width width"]:
        """Return ``S``, in at least float32."""
        kernel = lift_precision(self.kernel[...])
        return kernel - kernel.T

    def _multiply(self, u: Tokens, matrix: Float[Array, "width width"]) -> Tokens:
        """Return the product, of the type of `u`; in full precision, without which the norm drifts."""
        product = jnp.matmul(u.astype(self.dtype), matrix.astype(self.dtype), precision=Precision.HIGHEST)
        return product.astype(u.dtype)
