"""One number for a tree of arrays, to tell whether two runs are bit-equal."""

import hashlib

import jax
import numpy as np

from ctt.typing import PyTree


def tree_sha256(tree: PyTree) -> str:
    """Return the sha256 of a tree's paths, types, shapes and bytes, in the order of the paths.

    Args:
        tree: a pytree of arrays.

    Example:
        >>> tree_sha256({"a": np.zeros(2)}) == tree_sha256({"a": np.zeros(2)})
        True
        >>> tree_sha256({"a": np.zeros(2)}) == tree_sha256({"a": np.ones(2)})
        False
    """
    digest = hashlib.sha256()
    leaves = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
    for path, leaf in sorted(leaves, key=lambda pair: pair[0]):
        array = np.asarray(leaf)
        digest.update(f"{path} {array.dtype.name} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
