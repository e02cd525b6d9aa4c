"""A fingerprint of a data set, so that two copies of one set are never mixed up."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from ctt.data.dataset import Split
from ctt.data.mapped import MappedImages

_CHUNK_BYTES = 2**24


def compute_fingerprint(splits: Sequence[Split]) -> str:
    r"""Return the sha256 of decoded pixels and labels, in the source's own order.

    For each split in turn, first the images and then the labels are hashed, each as a header
    and its bytes. The header is the ASCII text ``<dtype> <shape>\n``, for instance
    ``|u1 (50000, 32, 32, 3)\n``; it makes the hash depend on shape and dtype. The bytes are the
    values in C order, little-endian. The images are those the model sees: decoded, and brought
    to `data.image_shape` where the stored ones have another shape.

    The splits are the source's (train and test of TFDS; the one table of scikit-learn's digits)
    before examples are held out for validation, so the fingerprint identifies the data and not
    `data.val_size` or `data.split_seed`. What is in a file is read piece by piece.

    Args:
        splits: the source's splits, in the source's order.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for split in splits:
        for array in (split.images, split.labels):
            dtype = array.dtype.newbyteorder("<")
            digest.update(f"{dtype.str} {array.shape}\n".encode("ascii"))
            for piece in _pieces(array):
                digest.update(np.ascontiguousarray(piece, dtype=dtype).data)
    return digest.hexdigest()


def _pieces(array: np.ndarray | MappedImages) -> Iterator[np.ndarray]:
    """Yield the rows of an array in order, a few megabytes at a time."""
    num_rows = max(1, _CHUNK_BYTES * len(array) // max(array.nbytes, 1))
    for start in range(0, len(array), num_rows):
        yield array[start : start + num_rows]
