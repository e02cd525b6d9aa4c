"""All measures of a split that need more than the loss and the accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from ctt.config.requirement import require
from ctt.training.evaluation.calibration import Reliability, measure_reliability
from ctt.training.evaluation.examples import Examples
from ctt.typing import Float, Int

USUAL_TOP = 5
"""The k of the top-k accuracy where none is given and there are more classes."""


@dataclass(frozen=True)
class Measures:
    """Measures of a model on a split, beside its loss and accuracy.

    An example with undefined logits (see `Examples`) is never right; its column of the confusion matrix does not exist,
    so its row sums to less than the support; and the calibration error and the Brier score are NaN.

    Attributes:
        num_undefined: examples whose logits have no softmax.
        top_k: the k of the top-k accuracy.
        top_k_accuracy: share of the examples whose label is among the k largest logits, in [0, 1].
        calibration_error: the expected calibration error, in [0, 1].
        brier_score: mean of ``sum_c (p_c - [c = label])^2`` (Brier 1950, equation (2)), in [0, 2].
        reliability: accuracy and confidence by bins of confidence.
        confusion: number of examples by true and predicted class `[classes, classes]`.
        support: examples of each class `[classes]`.
        recall: accuracy on the examples of each class; NaN where there are none `[classes]`.
    """

    num_undefined: int
    top_k: int
    top_k_accuracy: float
    calibration_error: float
    brier_score: float
    reliability: Reliability
    confusion: Int[np.ndarray, "classes classes"]
    support: Int[np.ndarray, " classes"]
    recall: Float[np.ndarray, " classes"]

    def worst_confusions(self, limit: int) -> list[tuple[int, int, int]]:
        """Return the most frequent errors, most frequent first: true class, predicted class, number of examples.

        Args:
            limit: at most so many.
        """
        errors = self.confusion - np.diag(np.diagonal(self.confusion))
        order = np.argsort(-errors, axis=None, kind="stable")[:limit]
        pairs = zip(*np.unravel_index(order, errors.shape), strict=True)
        return [(int(true), int(seen), int(errors[true, seen])) for true, seen in pairs if errors[true, seen]]

    def record(self, class_names: Sequence[str]) -> dict[str, Any]:
        """Return the measures as JSON values.

        Args:
            class_names: a name a class.
        """
        table = self.reliability
        bins = zip(table.edges, table.edges[1:], table.count, table.confidence, table.accuracy, strict=False)
        classes = zip(class_names, self.support, self.recall, strict=True)
        return {
            "num_undefined": self.num_undefined,
            "top_k": self.top_k,
            "top_k_accuracy": self.top_k_accuracy,
            "calibration_error": self.calibration_error,
            "brier_score": self.brier_score,
            "reliability": [
                {"above": float(a), "to": float(b), "count": int(n), "confidence": float(c), "accuracy": float(r)}
                for a, b, n, c, r in bins
            ],
            "classes": [{"name": name, "count": int(n), "accuracy": float(r)} for name, n, r in classes],
            "confusion": self.confusion.tolist(),
        }


def choose_top_k(top_k: int | None, num_classes: int) -> int:
    """Return the k of the top-k accuracy.

    Args:
        top_k: what was asked for; None: 5, or one fewer than the classes where that is less.
        num_classes: number of classes.

    Raises:
        InputError: it is not in [1, number of classes].
    """
    if top_k is None:
        return max(1, min(USUAL_TOP, num_classes - 1))
    requirement = f"be in [1, {num_classes}], the number of classes"
    require(1 <= top_k <= num_classes, "top_k", requirement, top_k, remedy="Pass another --top-k.")
    return top_k


def measure_examples(examples: Examples, num_classes: int, *, top_k: int | None = None, num_bins: int = 15) -> Measures:
    """Return all measures of some examples.

    Args:
        examples: what the model says of each; at least one.
        num_classes: number of classes.
        top_k: see `choose_top_k`.
        num_bins: bins of the reliability table, >= 1.

    Raises:
        InputError: see `choose_top_k`.
    """
    top_k = choose_top_k(top_k, num_classes)
    num_undefined = int(np.sum(~examples.is_defined))
    reliability = measure_reliability(examples, num_bins)
    predicted = np.where(examples.is_defined, examples.predicted, num_classes)  # A class more, for what has none.
    confusion = confusion_matrix(examples.labels, predicted, labels=np.arange(num_classes + 1))
    confusion = confusion[:num_classes, :num_classes]
    support = np.bincount(examples.labels, minlength=num_classes)
    with np.errstate(invalid="ignore"):
        recall = np.diagonal(confusion) / support
    return Measures(
        num_undefined=num_undefined,
        top_k=top_k,
        top_k_accuracy=float(np.mean(examples.rank < top_k)),
        calibration_error=float("nan") if num_undefined else reliability.expected_error,
        brier_score=float(np.mean(examples.squared_error)),
        reliability=reliability,
        confusion=confusion,
        support=support,
        recall=recall,
    )
