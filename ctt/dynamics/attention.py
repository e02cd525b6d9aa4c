"""Multi-head self-attention as a vector field: the non-local integral I of the continuous Transformer."""

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from ctt.config.error import InputError
from ctt.config.name import AttentionBiasName
from ctt.dynamics.precision import lift_precision
from ctt.typing import Array, Float, Time, Tokens

_kernel_init = nnx.initializers.truncated_normal(0.02)


def attend(
    query: Float[Array, "*batch tokens features"],
    key: Float[Array, "*batch tokens features"],
    value: Float[Array, "*batch tokens values"],
    *,
    scale: float,
    token_weights: Sequence[float] | Float[np.ndarray, " tokens"] | None = None,
    is_causal: bool = False,
) -> Float[Array, "*batch tokens values"]:
    """Return the integral over Omega_x of the values against ``gamma``, by quadrature over the tokens.

    Row i is ``sum_j gamma_ij V_j`` with ``gamma_ij = softmax_j(scale <Q_i, K_j> + log w_j)``:
    ``exp(s_ij) w_j`` over its sum, so that weights that are all equal cancel.

    Args:
        query: `[..., tokens, features]`.
        key: `[..., tokens, features]`.
        value: `[..., tokens, values]`.
        scale: factor of the scores ``<Q_i, K_j>``.
        token_weights: quadrature weights `[tokens]`, each > 0; None on a uniform mesh.
        is_causal: whether token i sees the tokens ``j <= i`` alone; the weights are normalised over these.

    Returns:
        `[..., tokens, values]`, of the type of `value`. The softmax is computed in at least float32.

    Raises:
        InputError: there is not one weight a token.

    References:
        MATH.md section 2; arXiv:2510.03989, equation (3.5).
    """
    scores = lift_precision(jnp.matmul(query * scale, jnp.swapaxes(key, -1, -2)))
    if token_weights is not None:
        scores = scores + jnp.asarray(np.log(_check_shape(token_weights, scores.shape[-1])), scores.dtype)
    if is_causal:
        visible = jnp.tri(*scores.shape[-2:], dtype=bool)
        scores = jnp.where(visible, scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    return jnp.matmul(weights, value)


def _check_shape(token_weights: Sequence[float] | np.ndarray, num_tokens: int) -> np.ndarray:
    """Return the weights as an array; raise `InputError` unless there is one a token."""
    weights = np.asarray(token_weights, np.float64)
    if weights.shape != (num_tokens,):
        raise InputError(
            f"`token_weights` must have one weight a token, {num_tokens} in all, got shape {weights.shape}. "
            "Give as many weights as the state has tokens, a class token included."
        )
    return weights


class SelfAttention(nnx.Module):
    """``A(u) = sum_m softmax(Q_m K_m^T / sqrt(d_k)) V_m W^O_m``, summed over the heads m.

    On a uniform token mesh the quadrature weights of the integral over Omega_x cancel in the
    softmax, and the usual attention is left (MATH.md section 2). On another mesh the row of
    token i is ``softmax_j(s_ij + log w_j)``.

    References:
        arXiv:2510.03989, equation (3.5); Vaswani et al. (2017), section 3.2.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        biases: Collection[AttentionBiasName],
        token_weights: ArrayLike | Sequence[float] | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the four projections.

        Args:
            width: features of a token; a multiple of `num_heads`.
            num_heads: number of heads.
            biases: which of ``query``, ``key``, ``value``, ``output`` have a bias.
            token_weights: quadrature weights of the tokens `[tokens]`, each > 0, not learnt; None for a
                uniform mesh, on which they cancel.
            is_causal: whether a token sees itself and those before it alone.
            scale: factor of the scores; None: one over the root of the features of a head.
            dtype: type of the computation.
            param_dtype: type of the weights.
            rngs: randomness of the initial weights (stream ``params``).

        Raises:
            InputError: a weight is not a positive number.
        """

        def project(name: AttentionBiasName) -> nnx.Linear:
            return nnx.Linear(
                width,
                width,
                use_bias=name in biases,
                kernel_init=_kernel_init,
                dtype=dtype,
                param_dtype=param_dtype,
                rngs=rngs,
            )

        self.num_heads = num_heads
        # Numbers, not an array: they are no parameters and have no axis of depth.
        self.token_weights = None if token_weights is None else _check_positive(token_weights)
        self.is_causal = is_causal
        self.scale = (width // num_heads) ** -0.5 if scale is None else scale
        self.query = project("query")
        self.key = project("key")
        self.value = project("value")
        self.output = project("output")

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``A(u)``.

        Args:
            t: time, unused: the controls are frozen.
            u: state `[..., tokens, width]`.

        Returns:
            An array of the shape of `u`. The softmax is computed in at least float32.
        """
        del t
        query, key, value = (split_heads(project(u), self.num_heads) for project in (self.query, self.key, self.value))
        heads = attend(
            query,
            key,
            value,
            scale=self.scale,
            token_weights=self.token_weights,
            is_causal=self.is_causal,
        )
        return self.output(merge_heads(heads))


def split_heads(x: Tokens, num_heads: int) -> Float[Array, "*batch heads tokens features"]:
    """Return the features of each head: plain matrix products then serve (1.5 times faster on CPU).

    Args:
        x: `[..., tokens, width]`.
        num_heads: number of heads.
    """
    return jnp.swapaxes(x.reshape(*x.shape[:-1], num_heads, -1), -2, -3)


def merge_heads(x: Float[Array, "*batch heads tokens features"]) -> Tokens:
    """Return the heads side by side, the inverse of `split_heads`.

    Args:
        x: `[..., heads, tokens, features]`.
    """
    x = jnp.swapaxes(x, -2, -3)
    return x.reshape(*x.shape[:-2], -1)


def _check_positive(token_weights: ArrayLike | Sequence[float]) -> tuple[float, ...]:
    """Return the weights as a tuple; raise `InputError` unless all are positive numbers."""
    weights = np.asarray(token_weights, np.float64)
    if weights.ndim != 1 or not np.all(np.isfinite(weights) & (weights > 0)):
        raise InputError(
            f"`token_weights` must be a list of finite numbers > 0, got {weights.tolist()}. Give the quadrature "
            "weights of the token mesh, or None for a uniform one."
        )
    return tuple(weights.tolist())
