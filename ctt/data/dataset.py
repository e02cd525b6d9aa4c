"""What a loaded data set is: three splits, the names of the classes, and a fingerprint."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, UInt8

from ctt.config.error import InputError, suggest
from ctt.config.name import SPLITS
from ctt.data.mapped import MappedImages


@dataclass(frozen=True)
class Split:
    """Images and labels of one split, in a fixed order.

    Attributes:
        images: pixels `[examples, height, width, channels]`, 0 to 255; in memory, or in a file of the cache.
        labels: class of each image `[examples]`, 0 to num_classes - 1.
    """

    images: UInt8[np.ndarray, "examples height width channels"] | MappedImages
    labels: Int32[np.ndarray, " examples"]

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def select(self, indices: np.ndarray) -> "Split":
        """Return the examples at `indices` `[selected]`, in that order: copied if in memory, not read if in a file."""
        images = self.images
        chosen = images.select(indices) if isinstance(images, MappedImages) else images[indices]
        return Split(chosen, self.labels[indices])

    def in_memory(self) -> "Split":
        """Return the same split with its images read into memory (itself if they are there already)."""
        return Split(np.asarray(self.images), self.labels) if isinstance(self.images, MappedImages) else self


@dataclass(frozen=True)
class OfficialData:
    """A data set as its source splits it, before examples are held out for validation.

    Attributes:
        train: the source's training split.
        test: the source's test split.
        class_names: name of each class.
        fingerprint: sha256 of pixels and labels, see `ctt.data.fingerprint`.
    """

    train: Split
    test: Split
    class_names: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class Dataset:
    """A data set ready for training.

    Attributes:
        train: what is learnt from; the validation examples are taken out of it.
        val: held out of the source's training split, to choose between runs.
        test: the source's own test split, looked at once.
        class_names: name of each class.
        fingerprint: sha256 of pixels and labels; it identifies the data, not the held-out split.
    """

    train: Split
    val: Split
    test: Split
    class_names: tuple[str, ...]
    fingerprint: str

    def split(self, name: str) -> Split:
        """Return the split called `name`.

        Args:
            name: `train`, `val` or `test`.

        Returns:
            That split.

        Raises:
            InputError: `name` is not the name of a split.
        """
        splits = {"train": self.train, "val": self.val, "test": self.test}
        if name not in splits:
            raise InputError(f"`split` must be the name of a split, got {name!r}: {suggest(name, SPLITS)}.")
        return splits[name]
