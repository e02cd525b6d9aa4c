"""Operators whose weights are smooth functions, sampled on meshes: the continuous Transformer before discretisation.

A trained network has matrices; here the matrices are values of kernels at the nodes of a mesh times
quadrature weights. On finer and finer meshes the operators converge, at the order of the quadrature.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np

from ctt.config.error import InputError
from ctt.dynamics.attention import attend
from ctt.dynamics.mesh import Mesh
from ctt.typing import Array, Time, Tokens

HeadKernel: TypeAlias = Callable[[Array, Array, Array, Time], Array]
"""A kernel ``W(xi, y, h, t)``, vectorised over arrays that broadcast; ``xi`` is integrated over."""

FeatureKernel: TypeAlias = Callable[[Array, Array, Time], Array]
"""A kernel ``W(xi, y, t)``, vectorised over arrays that broadcast; ``xi`` is integrated over."""

Bias: TypeAlias = Callable[[Array, Time], Array]
"""A bias ``b(y, t)``, vectorised over an array."""

SINGLE_HEAD = Mesh(np.zeros(1), np.ones(1))
"""One head, at h = 0, with weight 1."""


@dataclass(frozen=True)
class KernelAttention:
    """Attention with kernels ``W(xi, y, h, t)``, as an integral over tokens, features and heads.

    With nodes and weights ``(x_i, w^x_i)``, ``(y_l, w^y_l)`` and ``(h_n, w^h_n)``, for every head::

        Q(x_i, y_l) = sum_m w^y_m W^Q(y_m, y_l, h, t) u(x_i, y_m)           and so for K and V
        s_ij = sum_l w^y_l Q(x_i, y_l) K(x_j, y_l) / sqrt(|Omega_y|)
        H(x_i, y_l) = sum_j gamma_ij V(x_j, y_l),     gamma_ij = softmax_j(s_ij + log w^x_j)

    and the field is ``sum_n w^h_n sum_l w^y_l W^O(y_l, y, h_n, t) H_n(x_i, y_l)``. The kernels are
    evaluated at the time given: nothing is frozen.

    A causal attention sees the cells up to its own, that one whole, where the integral ends at ``x_i``: it
    is of first order in the token mesh, whatever the rule. Nodes must then be in increasing order.

    Attributes:
        query: the kernel ``W^Q``.
        key: the kernel ``W^K``.
        value: the kernel ``W^V``.
        tokens: the mesh of Omega_x.
        features: the mesh of Omega_y.
        heads: the mesh of the head variable h.
        output: the kernel ``W^O``; None for the identity: the values of the heads are summed with their weights.
        is_causal: whether a token sees itself and those before it alone.

    References:
        MATH.md sections 1 (integral I) and 2; arXiv:2510.03989, equation (3.5).
    """

    query: HeadKernel
    key: HeadKernel
    value: HeadKernel
    tokens: Mesh
    features: Mesh
    heads: Mesh = SINGLE_HEAD
    output: HeadKernel | None = None
    is_causal: bool = False

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``A(t, u)``, of the shape and type of `u`.

        Args:
            t: time, the last argument of the kernels.
            u: state at the nodes `[..., tokens, features]`; bfloat16 is computed in float32.

        Raises:
            InputError: the shape of `u` is not that of the meshes.
        """
        _check_shape(u, (self.tokens.num_nodes, self.features.num_nodes))
        dtype = jnp.promote_types(u.dtype, jnp.float32)
        # One axis of heads before those of tokens and features.
        state = u.astype(dtype)[..., None, :, :]
        weights = jnp.asarray(self.features.weights, dtype)

        def integrate(kernel: HeadKernel, field: Array) -> Array:
            return jnp.matmul(field * weights, self._sample(kernel, t, dtype))

        query, key, value = (integrate(kernel, state) for kernel in (self.query, self.key, self.value))
        mixed = attend(
            query * weights,
            key,
            value,
            scale=self.features.measure**-0.5,
            token_weights=self.tokens.weights,
            is_causal=self.is_causal,
        )
        mapped = mixed if self.output is None else integrate(self.output, mixed)
        head_weights = jnp.asarray(self.heads.weights, dtype)
        return jnp.einsum("h,...hxy->...xy", head_weights, mapped).astype(u.dtype)

    def _sample(self, kernel: HeadKernel, t: Time, dtype: jnp.dtype) -> Array:
        """Return the values `[heads, features, features]` of a kernel at the nodes, ``xi`` along the middle axis."""
        heads, nodes = jnp.asarray(self.heads.nodes, dtype), jnp.asarray(self.features.nodes, dtype)
        values = kernel(nodes[:, None], nodes, heads[:, None, None], t)
        return jnp.broadcast_to(jnp.asarray(values, dtype), (heads.size, nodes.size, nodes.size))


@dataclass(frozen=True)
class KernelLinear:
    """``<W(., y, t), u(x, .)>_{Omega_y} + b(y, t)``: one linear layer of the integral III.

    At the nodes it is ``sum_m w_m W(y_m, y_l, t) u(x_i, y_m) + b(y_l, t)``.

    Attributes:
        kernel: the kernel ``W(xi, y, t)``.
        bias: the bias ``b(y, t)``; None for no bias.
        features: the mesh of Omega_y.

    References:
        MATH.md sections 1 (integral III) and 2; arXiv:2510.03989, the integral III.
    """

    kernel: FeatureKernel
    bias: Bias | None
    features: Mesh

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return the field, of the shape and type of `u`.

        Args:
            t: time, the last argument of kernel and bias.
            u: state at the nodes `[..., tokens, features]`; bfloat16 is computed in float32.

        Raises:
            InputError: `u` has not one feature a node.
        """
        _check_shape(u, (u.shape[-2], self.features.num_nodes))
        dtype = jnp.promote_types(u.dtype, jnp.float32)
        nodes, weights = jnp.asarray(self.features.nodes, dtype), jnp.asarray(self.features.weights, dtype)
        values = jnp.broadcast_to(jnp.asarray(self.kernel(nodes[:, None], nodes, t), dtype), (nodes.size, nodes.size))
        field = jnp.matmul(u.astype(dtype) * weights, values)
        if self.bias is not None:
            field = field + jnp.asarray(self.bias(nodes, t), dtype)
        return field.astype(u.dtype)


def _check_shape(u: Tokens, expected: tuple[int, int]) -> None:
    """Raise `InputError` unless the last two axes of `u` have the lengths of the meshes."""
    if u.shape[-2:] != expected:
        raise InputError(
            f"The state must be sampled at the nodes of the meshes, its last two axes being {expected} tokens and "
            f"features, got shape {u.shape}. Sample it there, or build the operator on its meshes."
        )
