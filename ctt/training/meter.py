"""The splitting error along the depth of a model that is being trained."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from ctt.data.dataset import Split
from ctt.models.classifier import Classifier
from ctt.training.evaluate import split_model
from ctt.typing import PyTree


def build_splitting_meter(model: Classifier, num_images: int) -> Callable[[PyTree, Split], dict[str, list[float]]]:
    """Return ``measure(weights, split)``: by name, one value a time step, on the first images of a split.

    Args:
        model: gives the structure; its own weights are not used.
        num_images: at most so many images are looked at.
    """
    graphdef, _, rest = split_model(model)

    @jax.jit
    def compute(weights: PyTree, images: jax.Array) -> dict[str, jax.Array]:
        return nnx.merge(graphdef, weights, rest).measure_splitting(images)

    def measure(weights: PyTree, split: Split) -> dict[str, list[float]]:
        values: dict[str, Any] = compute(weights, split.images[:num_images])
        return {name: np.asarray(value, np.float64).tolist() for name, value in values.items()}

    return measure
