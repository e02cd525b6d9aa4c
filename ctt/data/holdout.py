"""The validation split: examples held out of the training split, the same for every run."""

import logging

import numpy as np
from jaxtyping import Int, Int32

from ctt.config.error import InputError

_LOGGER = logging.getLogger(__name__)


def check_val_size(size: int, *, num_examples: int) -> None:
    """Refuse a held-out split that is empty or leaves nothing to train on.

    Args:
        size: examples to hold out.
        num_examples: examples there are to hold out from.

    Raises:
        InputError: `size` is not between 1 and `num_examples` - 1.
    """
    if not 1 <= size < num_examples:
        raise InputError(
            f"`data.val_size` must be >= 1 and < {num_examples}, the examples of the training split, got {size}. "
            "Set it in the config file or pass --data.val_size."
        )


def hold_out(
    labels: Int32[np.ndarray, " examples"], size: int, *, seed: int
) -> tuple[Int[np.ndarray, " kept"], Int[np.ndarray, " held"]]:
    """Split indices so that each class keeps its share on both sides.

    The split depends on `labels`, `size` and `seed` alone. Where a class is too small to be
    divided (one example, or more classes than held-out or kept examples), the examples are drawn
    without regard to class, and the log says so.

    Args:
        labels: class of each example `[examples]`.
        size: number of examples to hold out.
        seed: seed of the draw.

    Returns:
        The sorted indices kept `[examples - size]` and held out `[size]`.

    Raises:
        InputError: `size` is not between 1 and the number of examples less 1.
    """
    from sklearn.model_selection import train_test_split

    check_val_size(size, num_examples=len(labels))
    obstacle = _find_obstacle(labels, size)
    if obstacle:
        _LOGGER.warning("The %d validation examples are drawn without regard to class: %s.", size, obstacle)
    kept, held = train_test_split(
        np.arange(len(labels)), test_size=size, random_state=seed, stratify=None if obstacle else labels
    )
    return np.sort(kept), np.sort(held)


def _find_obstacle(labels: np.ndarray, size: int) -> str | None:
    """Return why the classes cannot be divided in proportion, or None if they can."""
    classes, counts = np.unique(labels, return_counts=True)
    if counts.min() < 2:
        return f"class {classes[counts.argmin()]} has a single example"
    smaller_side = min(size, len(labels) - size)
    if smaller_side < len(classes):
        return f"{len(classes)} classes do not fit into {smaller_side} examples"
    return None
