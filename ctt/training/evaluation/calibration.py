"""How far the confidence of a model is from its accuracy: the reliability table and the ECE."""

from dataclasses import dataclass

import numpy as np

from ctt.training.evaluation.examples import Examples
from ctt.typing import Float, Int


@dataclass(frozen=True)
class Reliability:
    """Accuracy and confidence in M bins of confidence of equal width (Guo et al. 2017, arXiv:1706.04599, section 2).

    Examples without a confidence, their logits being undefined, are in no bin.

    Attributes:
        edges: borders of the bins `[bins + 1]`, 0 to 1; bin m holds the confidences in ``(edges[m], edges[m + 1]]``.
        count: examples in each bin `[bins]`.
        confidence: mean confidence in each bin; NaN where it is empty `[bins]`.
        accuracy: share of right examples in each bin; NaN where it is empty `[bins]`.
    """

    edges: Float[np.ndarray, " edges"]
    count: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]

    @property
    def expected_error(self) -> float:
        """The expected calibration error, equation (3): ``sum_m |B_m| / n |acc(B_m) - conf(B_m)|``, in [0, 1]."""
        is_filled = self.count > 0
        gaps = np.abs(self.accuracy - self.confidence)[is_filled]
        return float(np.sum(self.count[is_filled] * gaps) / np.sum(self.count)) if is_filled.any() else float("nan")


def measure_reliability(examples: Examples, num_bins: int) -> Reliability:
    """Return the reliability table of some examples.

    Args:
        examples: what the model says of each.
        num_bins: number of bins, >= 1.
    """
    confidence = examples.confidence[examples.is_defined]
    is_right = (examples.predicted == examples.labels)[examples.is_defined]
    edges = np.arange(num_bins + 1) / num_bins
    bins = np.searchsorted(edges[1:-1], confidence, side="left")
    count = np.bincount(bins, minlength=num_bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(bins, values, minlength=num_bins) / count for values in (confidence, is_right)]
    return Reliability(edges, count, *means)
