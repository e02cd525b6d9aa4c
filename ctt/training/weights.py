"""Which weights of a training state are measured: the last ones, and their moving average."""

import jax
import jax.numpy as jnp
from flax import nnx
from optax.contrib import schedule_free_eval_params

from ctt.config.schema import Config
from ctt.training.state import TrainState
from ctt.typing import Array, PyTree


def measured_weights(config: Config, state: TrainState) -> dict[str, PyTree]:
    """Return the weights that are measured, exported and loaded, by name, each with its running averages.

    Args:
        config: a resolved config.
        state: a training state.

    Returns:
        ``last``: the weights after the last update; with the rule schedule_free those are not the ones where gradients
        are taken, but the average of the steps. With `optimizer.ema_decay` also ``ema``.
    """
    params = state.params
    if config.optimizer.name == "schedule_free":
        params = schedule_free_eval_params(state.opt_state, params)
    weights = {"last": nnx.merge_state(params, state.statistics)}
    return weights if config.optimizer.ema_decay is None else {**weights, "ema": state.average}


def average_weights(average: PyTree, weights: PyTree, *, decay: float, num_updates: Array) -> PyTree:
    """Return the moving average after an update, ``d average + (1 - d) weights``.

    ``d = min(decay, (1 + n) / (10 + n))``, so that the initial weights are soon forgotten. Running averages of batch
    normalisation are averaged like weights: of the mean and the variance that is again a mean and a variance.

    Args:
        average: that before, in the type of the weights.
        weights: the weights after the update.
        decay: the limit of ``d``, in [0, 1).
        num_updates: number ``n`` of updates before this one.

    References:
        Polyak and Juditsky, SIAM J. Control Optim. 30 (1992); the correction is that of TensorFlow's
        ``ExponentialMovingAverage``, and of timm.
    """
    n = num_updates.astype(jnp.float32)
    share = 1 - jnp.minimum(decay, (1 + n) / (10 + n))
    return jax.tree.map(lambda old, new: old + share.astype(old.dtype) * (new - old), average, weights)
