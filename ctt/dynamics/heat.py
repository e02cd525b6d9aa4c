"""Heat diffusion over the 2-D mesh of tokens: a linear operator with an exact flow."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.lax import Precision

from ctt.config.error import InputError
from ctt.dynamics.precision import lift_precision
from ctt.typing import Array, Float, Time, Tokens


def neumann_laplacian(num_nodes: int) -> Float[np.ndarray, "num_nodes num_nodes"]:
    """Return the second difference on a mesh of spacing 1 with no flux through its ends.

    Args:
        num_nodes: number of cells, >= 1.

    Returns:
        A symmetric float64 matrix whose rows and columns sum to 0.

    Example:
        >>> neumann_laplacian(3).tolist()
        [[-1.0, 1.0, 0.0], [1.0, -2.0, 1.0], [0.0, 1.0, -1.0]]
    """
    differences = np.diff(np.eye(num_nodes), axis=0)
    return 0.0 - differences.T @ differences


def neumann_modes(
    num_nodes: int,
) -> tuple[Float[np.ndarray, "num_nodes num_nodes"], Float[np.ndarray, " num_nodes"]]:
    """Return the orthonormal eigenvectors of `neumann_laplacian`, the basis of the DCT-II, and its eigenvalues.

    Args:
        num_nodes: number of cells n, >= 1.

    Returns:
        ``C [nodes, modes]`` with columns proportional to ``cos(pi k (i + 1/2) / n)``, and
        ``lambda_k = -4 sin^2(pi k / 2n)``, all <= 0 and ``lambda_0 = 0`` exactly.

    References:
        Strang, "The Discrete Cosine Transform", SIAM Review 41 (1999).
    """
    modes = np.arange(num_nodes)
    vectors = np.cos(np.pi * np.outer(modes + 0.5, modes) / num_nodes)
    values = 0.0 - 4 * np.sin(np.pi * modes / (2 * num_nodes)) ** 2
    return vectors / np.linalg.norm(vectors, axis=0), values


class HeatDiffusion(nnx.Module):
    """``u_t = kappa Laplacian u`` on a mesh of rows and columns of tokens, with one ``kappa > 0`` a feature.

    The mesh has spacing 1 and no flux through its boundary (Neumann). The flow is exact: it keeps each
    feature's mean, obeys the maximum principle and is stable for every step, all up to round-off. Tokens
    before those of the mesh, such as a class token, do not move.

    Attributes:
        is_reversible: False: backwards in time the heat equation is ill posed, so a scheme with a negative
            fraction must refuse this operator.
        log_diffusivity: ``log kappa``, `[width]`.

    References:
        Evans, "Partial Differential Equations" (2010), section 2.3.
    """

    is_reversible: ClassVar[bool] = False

    def __init__(
        self,
        width: int,
        grid: tuple[int, int],
        *,
        num_prefix_tokens: int = 0,
        diffusivity: float = 0.1,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """Create the diffusion.

        Args:
            width: features of a token.
            grid: rows and columns of the token mesh, row by row, each >= 1.
            num_prefix_tokens: tokens before those of the mesh, >= 0.
            diffusivity: kappa at first [squared mesh spacings per unit of time], > 0.
            dtype: unused, accepted so that all parts are built alike: the computation is in at least float32.
            param_dtype: type of the weights.
            rngs: unused randomness, accepted likewise.

        Raises:
            InputError: `diffusivity` is not positive, or the mesh has no tokens.
        """
        del dtype, rngs
        if not (np.isfinite(diffusivity) and diffusivity > 0):
            raise InputError(
                f"`diffusivity` must be a finite number > 0, got {diffusivity}. Leave the operator out to have no "
                "diffusion."
            )
        if min(grid) < 1 or num_prefix_tokens < 0:
            raise InputError(
                "`grid` must have at least one row and one column and `num_prefix_tokens` must be >= 0, got "
                f"{tuple(grid)} and {num_prefix_tokens}. Give the rows and columns of the patches."
            )
        self.grid = (int(grid[0]), int(grid[1]))
        self.num_prefix_tokens = num_prefix_tokens
        self.log_diffusivity = nnx.Param(jnp.full((width,), np.log(diffusivity), param_dtype))

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``kappa Laplacian u``, and 0 for the tokens before the mesh.

        Args:
            t: time, unused: the controls are frozen.
            u: state `[..., tokens, width]`, tokens being ``num_prefix_tokens + rows * columns``.

        Raises:
            InputError: `u` has another number of tokens.
        """
        del t
        prefix, mesh = self._split(u)
        down, across = (neumann_laplacian(n) for n in self.grid)
        rate = _apply_along(down, mesh, "ij,...jkc->...ikc") + _apply_along(across, mesh, "ij,...kjc->...kic")
        return self._join(jnp.zeros_like(prefix), self._diffusivity(mesh.dtype) * rate, u)

    def flow(self, u: Tokens, t0: Time, t1: Time) -> Tokens:
        """Return ``exp((t1 - t0) kappa Laplacian) u``: the exact solution at `t1` from `u` at `t0`.

        Args:
            u: state `[..., tokens, width]`, tokens being ``num_prefix_tokens + rows * columns``.
            t0: time of `u`; may be traced.
            t1: time of the result, >= `t0`; may be traced.

        Raises:
            InputError: `u` has another number of tokens.
        """
        prefix, mesh = self._split(u)
        (down, down_values), (across, across_values) = (neumann_modes(n) for n in self.grid)
        # <= 0 for every mode, so that the exponential cannot overflow.
        exponents = jnp.asarray(down_values[:, None] + across_values, mesh.dtype)[..., None]
        decay = jnp.exp(exponents * (self._diffusivity(mesh.dtype) * jnp.asarray(t1 - t0, mesh.dtype)))
        spectrum = _apply_along(across, _apply_along(down, mesh, "ji,...jkc->...ikc"), "ji,...kjc->...kic")
        decayed = decay * spectrum
        moved = _apply_along(across, _apply_along(down, decayed, "ij,...jkc->...ikc"), "ij,...kjc->...kic")
        return self._join(prefix, moved, u)

    def _diffusivity(self, dtype: jnp.dtype) -> Array:
        """Return ``kappa``, one a feature."""
        return jnp.exp(self.log_diffusivity[...].astype(dtype))

    def _split(self, u: Tokens) -> tuple[Array, Array]:
        """Return the tokens before the mesh, and the mesh `[..., rows, columns, width]` in at least float32."""
        rows, columns = self.grid
        if u.shape[-2] != self.num_prefix_tokens + rows * columns:
            raise InputError(
                f"Heat diffusion on {rows} rows and {columns} columns after {self.num_prefix_tokens} other tokens "
                f"takes {self.num_prefix_tokens + rows * columns} tokens, got {u.shape[-2]}. Build it with the grid of "
                "the state."
            )
        wide = lift_precision(u[..., self.num_prefix_tokens :, :])
        return u[..., : self.num_prefix_tokens, :], wide.reshape(*u.shape[:-2], rows, columns, u.shape[-1])

    def _join(self, prefix: Array, mesh: Array, u: Tokens) -> Tokens:
        """Return tokens before the mesh and the mesh as one array of the shape and type of `u`."""
        tokens = mesh.reshape(*u.shape[:-2], -1, u.shape[-1]).astype(u.dtype)
        return jnp.concatenate([prefix, tokens], axis=-2)


def _apply_along(matrix: np.ndarray, mesh: Array, subscripts: str) -> Array:
    """Return the product with a constant matrix, in full precision on every device."""
    return jnp.einsum(subscripts, jnp.asarray(matrix, mesh.dtype), mesh, precision=Precision.HIGHEST)
