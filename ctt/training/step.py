"""One update, pure: ``update(state, batch) -> (state, metrics)``."""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from ctt.config.schema import Config
from ctt.data.augment import Augmented, augment
from ctt.models.classifier import Classifier
from ctt.training.accumulate import accumulate
from ctt.training.loss import cross_entropy, likeliest
from ctt.training.optimizer import build_optimizer, build_schedule, locate_parameters
from ctt.training.state import Batch, TrainState, init_state
from ctt.training.weights import average_weights
from ctt.typing import Array, Key, PyTree

Metrics: TypeAlias = dict[str, Array]

Update: TypeAlias = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]
"""The signature of every optimiser."""

_AUGMENTATION, _DROPOUT = 2, 3
"""Tags that keep the uses of a run's seed apart; 0 is the initial weights, 1 the sampler."""


def augment_batch(config: Config, step: Array, batch: Batch, *, slots: Array | None = None) -> Augmented:
    """Return what the examples of a batch become in an update.

    Args:
        config: a resolved config.
        step: number of finished updates.
        batch: the whole batch, or some of it.
        slots: the places of `batch` in the whole batch, of which partners are mirror images of each other, as in
            ``[0, 1, 62, 63]`` of 64; None: it is whole.
    """
    size = batch.labels.shape[0] if slots is None else config.training.batch_size
    keys = example_keys(config.seed, _AUGMENTATION, step, size)
    return augment(
        keys if slots is None else keys[slots],
        batch.images,
        batch.labels,
        config.augmentation,
        num_classes=config.data.num_classes or 0,
        fill=config.data.mean or (),
    )


def example_keys(seed: int, tag: int, step: Array, batch_size: int) -> Key[Array, " batch"]:
    """Return one key an example, a function of the seed, the step and the example's place in the batch.

    Args:
        seed: the run's seed.
        tag: what the keys are for.
        step: number of finished updates.
        batch_size: number of examples in the whole batch, on all devices.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), tag), step)
    return jax.vmap(lambda slot: jax.random.fold_in(key, slot))(jnp.arange(batch_size))


def build_update(config: Config, model: Classifier, total_steps: int) -> tuple[TrainState, Update]:
    """Return the initial state and the update of a config.

    Args:
        config: a resolved config.
        model: the model, taken apart here, outside the hot loop.
        total_steps: length of the run, for the schedule.

    Returns:
        The state before the first update, and a pure function, to be jitted. Its measures are those of the batch
        before the update, the norms of the update itself and of the weights after it, all over all parameters, and the
        learning rate of the update.
    """
    model = nnx.merge(*nnx.split(model))
    model.train()  # Batch normalisation, where there is any, uses the statistics of the batch.
    graphdef, params, statistics, rest = nnx.split(model, nnx.Param, nnx.BatchStat, ...)
    recipe, num_parts = config.optimizer, config.training.micro_batches
    schedule = build_schedule(recipe, total_steps)
    optimizer = build_optimizer(recipe, schedule, locate_parameters(model))

    def loss(
        params: PyTree, statistics: PyTree, batch: Augmented, keys: Key[Array, " batch"]
    ) -> tuple[Array, tuple[Array, PyTree]]:
        model = nnx.merge(graphdef, params, statistics, rest, copy=True)  # The averages are written to.
        logits = model(batch.images, keys=keys)
        costs = cross_entropy(logits, batch.labels, label_smoothing=recipe.label_smoothing)
        accuracy = jnp.mean(jnp.argmax(logits, axis=-1) == likeliest(batch.labels))
        return jnp.mean(costs), (accuracy, nnx.state(model, nnx.BatchStat))

    differentiate = accumulate(jax.value_and_grad(loss, has_aux=True), num_parts)

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        num_examples = batch.labels.shape[0]
        dropout_keys = example_keys(config.seed, _DROPOUT, state.step, num_examples)
        augmented = augment_batch(config, state.step, batch)
        (value, (accuracy, statistics)), gradient = differentiate(
            state.params, state.statistics, augmented, dropout_keys
        )
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        after = TrainState(state.step + 1, params, statistics, opt_state, state.average)
        if recipe.ema_decay is not None:
            average = average_weights(state.average, after.weights, decay=recipe.ema_decay, num_updates=state.step)
            after = dataclasses.replace(after, average=average)
        metrics = {
            "loss": value,
            "accuracy": accuracy,
            "gradient_norm": optax.tree.norm(gradient),
            "update_norm": optax.tree.norm(updates),
            "parameter_norm": optax.tree.norm(params),
            "learning_rate": jnp.asarray(schedule(state.step)),
        }
        return after, metrics

    return init_state(params, statistics, optimizer, has_average=recipe.ema_decay is not None), update
