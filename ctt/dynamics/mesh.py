"""Meshes of quadrature nodes: what turns the integrals over tokens, features and heads into sums."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ctt.config.error import InputError
from ctt.typing import Float, Int


@dataclass(frozen=True, eq=False)
class Mesh:
    """Nodes ``x_i`` and positive weights ``w_i`` with ``integral g(x) dx ~ sum_i w_i g(x_i)``.

    The arrays are copied, read-only and of type float64. Meshes with the same numbers are equal and
    have the same hash, so that a mesh may be a static argument of a compiled function.

    Attributes:
        nodes: `[num_nodes]`, in any order.
        weights: `[num_nodes]`, each > 0.

    Raises:
        InputError: the arrays are no quadrature rule with positive weights.

    References:
        MATH.md section 2.

    Example:
        >>> mesh = Mesh.midpoint(4)
        >>> float(np.sum(mesh.weights * mesh.nodes))
        0.5
    """

    nodes: Float[np.ndarray, " num_nodes"]
    weights: Float[np.ndarray, " num_nodes"]

    def __post_init__(self) -> None:
        """Copy and check the arrays."""
        for name in ("nodes", "weights"):
            array = np.array(getattr(self, name), np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
            if array.ndim != 1 or array.size == 0:
                raise InputError(
                    f"The {name} of a mesh must be a one-dimensional array of at least one number, got an array of "
                    f"shape {array.shape}. Give a list of numbers."
                )
            if not np.all(np.isfinite(array)):
                raise InputError(
                    f"The {name} of a mesh must be finite, got {array.tolist()}. Remove the infinities and NaNs."
                )
        if self.nodes.shape != self.weights.shape:
            raise InputError(
                f"A mesh must have one weight a node, got {self.nodes.size} nodes and {self.weights.size} weights. "
                "Give two lists of the same length."
            )
        if not np.all(self.weights > 0):
            raise InputError(
                f"The weights of a mesh must be > 0, got {self.weights.tolist()}. Leave out nodes of weight 0, and use "
                "a quadrature rule with positive weights."
            )

    @classmethod
    def midpoint(cls, num_nodes: int, start: float = 0.0, end: float = 1.0) -> "Mesh":
        """Return the midpoints of equal cells: the uniform mesh, of second order.

        Args:
            num_nodes: number of cells, >= 1.
            start: left end of the interval.
            end: right end of the interval, > `start`.

        Raises:
            InputError: no cell, or an empty interval.
        """
        _check_interval(num_nodes, start, end)
        return cls.from_edges(np.linspace(start, end, num_nodes + 1))

    @classmethod
    def gauss_legendre(cls, num_nodes: int, start: float = 0.0, end: float = 1.0) -> "Mesh":
        """Return the Gauss-Legendre rule, exact for polynomials of degree ``2 num_nodes - 1``.

        Args:
            num_nodes: number of nodes, >= 1.
            start: left end of the interval.
            end: right end of the interval, > `start`.

        Raises:
            InputError: no node, or an empty interval.
        """
        _check_interval(num_nodes, start, end)
        nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
        half = 0.5 * (end - start)
        return cls(start + half * (nodes + 1), half * weights)

    @classmethod
    def from_edges(cls, edges: Sequence[float] | Float[np.ndarray, " edges"]) -> "Mesh":
        """Return the midpoints of the cells between `edges`, the weights being the widths of the cells.

        Args:
            edges: at least two numbers, increasing.

        Raises:
            InputError: the edges do not increase.
        """
        array = np.asarray(edges, np.float64)
        if array.ndim != 1 or array.size < 2 or not np.all(np.diff(array) > 0):
            raise InputError(
                f"The edges of a mesh must be at least two increasing numbers, got {array.tolist()}. Sort them and "
                "remove duplicates."
            )
        return cls(0.5 * (array[1:] + array[:-1]), np.diff(array))

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.nodes.size

    @property
    def measure(self) -> float:
        """The measure ``|Omega|`` of the domain: the sum of the weights."""
        return float(np.sum(self.weights))

    def permute(self, order: Sequence[int] | Int[np.ndarray, " num_nodes"]) -> "Mesh":
        """Return the same rule with its nodes and weights in another order.

        Args:
            order: a permutation of ``range(num_nodes)``; entry i is the old position of the new node i.

        Raises:
            InputError: `order` is no permutation of the nodes.
        """
        indices = np.asarray(order)
        if not np.array_equal(np.sort(indices), np.arange(self.num_nodes)):
            raise InputError(
                f"`order` must be a permutation of 0 to {self.num_nodes - 1}, got {indices.tolist()}. Name each node "
                "once."
            )
        return Mesh(self.nodes[indices], self.weights[indices])

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is a mesh with the same numbers."""
        return isinstance(other, Mesh) and self._bytes == other._bytes

    def __hash__(self) -> int:
        """Return a hash of the numbers."""
        return hash(self._bytes)

    @property
    def _bytes(self) -> tuple[bytes, bytes]:
        return self.nodes.tobytes(), self.weights.tobytes()


def _check_interval(num_nodes: int, start: float, end: float) -> None:
    """Raise `InputError` unless there is a node and the interval is not empty."""
    if num_nodes < 1:
        raise InputError(f"`num_nodes` of a mesh must be >= 1, got {num_nodes}. Ask for at least one node.")
    if not (np.isfinite(start) and np.isfinite(end) and start < end):
        raise InputError(
            f"The interval of a mesh must be finite with start < end, got [{start}, {end}]. Give its ends in order."
        )
