"""What is kept of the logits of each example."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from ctt.typing import Float, Int


@dataclass(frozen=True)
class Examples:
    """What a model says of each example of a split, in float64.

    The logits of an example are undefined where the softmax of them is: one is NaN or +inf, or all are -inf. Such an
    example has no predicted class, and is never right.

    Attributes:
        labels: the true class `[examples]`.
        predicted: the class of the largest logit, the first of equal ones; -1 where undefined `[examples]`.
        confidence: the largest probability; NaN where undefined `[examples]`.
        rank: number of classes before the true one, where equal logits stand in the order of their classes; the number
            of classes where undefined `[examples]`.
        squared_error: ``sum_c (p_c - [c = label])^2``, in [0, 2]; NaN where undefined `[examples]`.
    """

    labels: Int[np.ndarray, " examples"]
    predicted: Int[np.ndarray, " examples"]
    confidence: Float[np.ndarray, " examples"]
    rank: Int[np.ndarray, " examples"]
    squared_error: Float[np.ndarray, " examples"]

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    @property
    def is_defined(self) -> np.ndarray:
        """Whether the logits have a softmax `[examples]`."""
        return self.predicted >= 0


def describe_examples(logits: np.ndarray, labels: np.ndarray) -> Examples:
    """Return what is kept of some logits.

    Args:
        logits: `[examples, classes]`.
        labels: the true classes `[examples]`.
    """
    logits, labels = np.asarray(logits, np.float64), np.asarray(labels)
    rows, num_classes = np.arange(len(labels)), logits.shape[1]
    with np.errstate(invalid="ignore"):
        is_defined = np.isfinite(np.max(logits, axis=1))
        probabilities = softmax(logits, axis=1)
        own = logits[rows, labels][:, None]
        is_before = (logits > own) | ((logits == own) & (np.arange(num_classes) < labels[:, None]))
        squared_error = np.sum(np.square(probabilities - np.eye(num_classes)[labels]), axis=1)
    return Examples(
        labels.astype(np.int64),
        np.where(is_defined, np.argmax(logits, axis=1), -1),
        np.where(is_defined, np.max(probabilities, axis=1), np.nan),
        np.where(is_defined, np.sum(is_before, axis=1), num_classes),
        np.where(is_defined, squared_error, np.nan),
    )


def join_examples(parts: Sequence[Examples]) -> Examples:
    """Return the examples of several batches, in their order.

    Args:
        parts: at least one batch.
    """
    names = [field.name for field in dataclasses.fields(Examples)]
    return Examples(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
