"""Mesh convergence: attention with smooth kernels, sampled on finer and finer meshes."""

from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np

from ctt.certificates.check import Check, check_bound, exact_arithmetic
from ctt.certificates.order import TOLERANCE
from ctt.dynamics.kernel import KernelAttention
from ctt.dynamics.mesh import Mesh

_MESHES = (7, 11, 17, 25)
"""Odd, so that the middle of the interval is a node of every midpoint mesh."""


def check_meshes() -> Iterator[Check]:
    """Check that attention on a mesh converges to the integral, at the order of the quadrature.

    Tokens, features and heads are refined together; the value at the middle of both intervals is compared with
    that of 25 Gauss-Legendre nodes each.

    References:
        MATH.md section 2.
    """
    with exact_arithmetic():
        exact = _value(25, Mesh.gauss_legendre)
        errors = [abs(_value(n, Mesh.midpoint) - exact) for n in _MESHES]
        spectral = abs(_value(17, Mesh.gauss_legendre) - exact) / abs(exact)
        permuted = _permutation_error()
    slopes = -np.diff(np.log(errors)) / np.diff(np.log(_MESHES))
    values = {"nodes": list(_MESHES), "errors": errors, "slopes": [float(x) for x in slopes]}
    outcome = "holds" if abs(slopes[-1] - 2) <= TOLERANCE else "does not hold"
    yield Check("attention on midpoint meshes is second order", outcome, f"observed {slopes[-1]:.2f}", "", values)
    yield check_bound("attention on 17 Gauss-Legendre nodes is exact", spectral, 1e-11)
    yield check_bound("a permuted non-uniform mesh permutes the output", permuted, 1e-13)


def _state(x: np.ndarray, y: np.ndarray) -> jnp.ndarray:
    return jnp.asarray(np.sin(2 * x)[:, None] * np.cos(3 * y)[None, :] + x[:, None] * y[None, :])


def _attention(tokens: Mesh, features: Mesh, heads: Mesh) -> KernelAttention:
    return KernelAttention(
        query=lambda xi, y, h, t: jnp.cos(xi + 2 * y + h + t),
        key=lambda xi, y, h, t: jnp.sin(2 * xi - y + h) + 0.5,
        value=lambda xi, y, h, t: jnp.exp(-((xi - y) ** 2)) * (1 + h),
        output=lambda xi, y, h, t: jnp.cos(xi * y - h),
        tokens=tokens,
        features=features,
        heads=heads,
    )


def _value(num_nodes: int, mesh: Callable[[int], Mesh]) -> float:
    nodes = mesh(num_nodes)
    middle = num_nodes // 2
    field = _attention(nodes, nodes, nodes).vector_field(0.3, _state(nodes.nodes, nodes.nodes))
    return float(field[middle, middle])


def _permutation_error() -> float:
    features = Mesh.gauss_legendre(6)
    tokens = Mesh.from_edges(np.array([0.0, 0.1, 0.15, 0.4, 0.7, 1.0]))
    order = np.array([3, 0, 4, 1, 2])
    straight = _attention(tokens, features, features).vector_field(0.0, _state(tokens.nodes, features.nodes))
    mixed = tokens.permute(order)
    received = _attention(mixed, features, features).vector_field(0.0, _state(mixed.nodes, features.nodes))
    return float(jnp.max(jnp.abs(received - straight[order])))
