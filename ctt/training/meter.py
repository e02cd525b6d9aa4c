"""The splitting error along the depth of a model that is being trained."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from ctt.data.dataset import Split
from ctt.models.solution import measure_splitting
from ctt.models.vit import ViT
from ctt.typing import PyTree


def build_splitting_meter(model: ViT, num_images: int) -> Callable[[PyTree, Split], dict[str, list[float]]]:
    """Return ``measure(params, split)``: by name, one value a time step, on the first images of a split.

    Args:
        model: gives the structure; its own weights are not used.
        num_images: at most so many images are looked at.
    """
    graphdef, _, rest = nnx.split(model, nnx.Param, ...)

    @jax.jit
    def compute(params: PyTree, images: jax.Array) -> dict[str, jax.Array]:
        model = nnx.merge(graphdef, params, rest)
        return measure_splitting(model.evolution, model.initial_state(images))

    def measure(params: PyTree, split: Split) -> dict[str, list[float]]:
        values: dict[str, Any] = compute(params, split.images[:num_images])
        return {name: np.asarray(value, np.float64).tolist() for name, value in values.items()}

    return measure
