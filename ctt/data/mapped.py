"""Images that stay in a file and are read when asked for, so that a set need not fit into memory."""

from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Int, UInt8

RowKey = SupportsIndex | slice | np.ndarray | list[int]


class MappedImages:
    """Rows of a memory-mapped array, in any order, that behave like an array `[examples, height, width, channels]`.

    Whatever is taken out by an index is an array in memory. A selection of rows is a list of row numbers and copies no
    pixel. `np.asarray` reads everything.
    """

    def __init__(
        self,
        source: UInt8[np.ndarray, "rows height width channels"],
        rows: Int[np.ndarray, " examples"] | None = None,
    ):
        """Select rows of an array.

        Args:
            source: the array, usually a memory map `[rows, height, width, channels]`.
            rows: numbers `[examples]` of its rows, each >= 0; None: all of them, in order.
        """
        self._source = source.view(np.ndarray)  # Keeps the map alive without being one.
        self._rows = rows

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._source) if self._rows is None else len(self._rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of images, height, width and channels."""
        return (len(self), *self._source.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._source.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a pixel."""
        return self._source.dtype

    @property
    def nbytes(self) -> int:
        """Size of all images in memory [bytes]."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def select(self, indices: Int[np.ndarray, " selected"]) -> "MappedImages":
        """Return the images at `indices` without reading them.

        Args:
            indices: numbers `[selected]` of images.

        Returns:
            Those images, in that order.

        Raises:
            IndexError: there is no such image.
        """
        rows = np.arange(len(self._source)) if self._rows is None else self._rows
        return MappedImages(self._source, rows[indices])

    def __getitem__(self, key: RowKey | tuple[Any, ...]) -> Any:
        """Read images, or with a tuple (of integers and slices after the first) parts of them, into memory."""
        if isinstance(key, tuple):
            first, rest = key[0], key[1:]
            if not all(isinstance(part, int | np.integer | slice) for part in rest) or first is Ellipsis:
                raise TypeError("Images that stay in a file are indexed by integers and slices behind the first axis.")
            images = self[first]
            return images[rest if images.ndim < self.ndim else (slice(None), *rest)]
        return np.array(self._source[key if self._rows is None else self._rows[key]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all images into memory."""
        if copy is False:
            raise ValueError("Images that stay in a file cannot become an array without a copy.")
        return self[:].astype(dtype or self.dtype, copy=False)
