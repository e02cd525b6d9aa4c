"""What a training state is worth: loss and accuracy of its weights, and of their moving average where there is one."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctt.config.schema import Config
from ctt.data.dataset import Dataset
from ctt.models.classifier import Classifier
from ctt.training.devices import Layout
from ctt.training.evaluate import build_evaluator
from ctt.training.meter import build_splitting_meter
from ctt.training.state import TrainState
from ctt.training.weights import measured_weights
from ctt.typing import Array


class Examiner:
    """Measures training states on the splits of a data set."""

    def __init__(self, config: Config, model: Classifier, dataset: Dataset, layout: Layout):
        """Prepare to measure; each program is compiled when it is first needed.

        Args:
            config: the resolved config.
            model: gives the structure.
            dataset: the data.
            layout: the devices.
        """
        self._config, self._dataset = config, dataset
        self._evaluate = build_evaluator(model, config.training.eval_batch_size, layout)
        self._is_finite = jax.jit(_is_finite, out_shardings=layout.whole)
        self._measure_splitting = build_splitting_meter(model, config.training.batch_size)

    def measure(self, state: TrainState, split: str) -> dict[str, float]:
        """Return ``loss`` and ``accuracy``, and with a moving average ``ema_loss`` and ``ema_accuracy``.

        Args:
            state: a training state.
            split: name of the split.
        """
        values = {}
        for name, weights in measured_weights(self._config, state).items():
            result = self._evaluate(weights, self._dataset.split(split))
            prefix = "" if name == "last" else f"{name}_"
            values |= {f"{prefix}loss": result.loss, f"{prefix}accuracy": result.accuracy}
        return values

    def measure_splitting(self, state: TrainState, split: str) -> dict[str, Any]:
        """Return the splitting error along the depth, if the config asks for it.

        Args:
            state: a training state.
            split: name of the split.
        """
        if not self._config.training.log_splitting_error:
            return {}
        weights = measured_weights(self._config, state)["last"]
        return {"splitting": self._measure_splitting(weights, self._dataset.split(split))}

    def is_finite(self, state: TrainState) -> bool:
        """Return whether all of a state is finite: weights, running averages, the optimiser's moments, the average.

        Args:
            state: a training state.
        """
        return bool(self._is_finite(state))

    def has_finite_loss(self, state: TrainState) -> bool:
        """Return whether the loss of a state on some images is a number, as it must be for training to go on from it.

        Args:
            state: a training state.
        """
        some = self._dataset.val.select(np.arange(min(len(self._dataset.val), self._config.training.eval_batch_size)))
        return all(
            math.isfinite(self._evaluate(weights, some).loss)
            for weights in measured_weights(self._config, state).values()
        )


def _is_finite(state: TrainState) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def find_score(values: Mapping[str, float]) -> float:
    """Return what the best checkpoint has most of: the accuracy of the moving average, where there is one.

    Args:
        values: what `Examiner.measure` returned.
    """
    return values.get("ema_accuracy", values["accuracy"])
