"""Loss and accuracy on a whole split."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ctt.config.error import InputError
from ctt.data.dataset import Split
from ctt.data.sampler import padded_batches
from ctt.models.classifier import Classifier
from ctt.training.loss import cross_entropy
from ctt.typing import PyTree


@dataclass(frozen=True)
class Evaluation:
    """Measures of a model on a split.

    Attributes:
        num_examples: size of the split.
        loss: mean cross-entropy [nats], without label smoothing.
        accuracy: share of the examples whose largest logit is the label's, in [0, 1].
    """

    num_examples: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class AdaptiveEvaluation(Evaluation):
    """Measures of a model whose steps adapt to the splitting error of each image.

    Attributes:
        mean_steps: accepted steps an image, mean over the split.
        min_steps: smallest number of accepted steps.
        max_steps: largest number of accepted steps.
        mean_rejected: rejected steps an image, mean over the split.
    """

    mean_steps: float
    min_steps: int
    max_steps: int
    mean_rejected: float


def split_model(model: Classifier) -> tuple[nnx.GraphDef, PyTree, PyTree]:
    """Return a model's structure in evaluation, its weights with their running averages, and the rest.

    Args:
        model: the model; it is not changed.
    """
    model = nnx.merge(*nnx.split(model))
    model.eval()
    graphdef, weights, rest = nnx.split(model, (nnx.Param, nnx.BatchStat), ...)  # pyright: ignore[reportAssignmentType]
    return graphdef, weights, rest


def build_adaptive_evaluator(
    model: Classifier, batch_size: int, *, rtol: float, atol: float, max_steps: int
) -> Callable[[PyTree, Split], AdaptiveEvaluation]:
    """Return ``evaluate(weights, split)`` with steps that adapt to each image by itself.

    Args:
        model: gives the structure; its own weights are not used.
        batch_size: images a dispatch; changes nothing but speed and memory.
        rtol: relative tolerance of the local error.
        atol: absolute tolerance of the local error.
        max_steps: at most so many steps an image.
    """
    graphdef, _, rest = split_model(model)

    @jax.jit
    def measure(weights: PyTree, images: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
        model = nnx.merge(graphdef, weights, rest)

        def solve(image: jax.Array) -> tuple[jax.Array, ...]:
            result = model.classify_adaptively(image[None], rtol=rtol, atol=atol, max_steps=max_steps)
            return result.logits[0], result.is_done, result.accepted, result.rejected

        logits, is_done, accepted, rejected = jax.vmap(solve)(images)
        costs, is_right = cross_entropy(logits, labels), jnp.argmax(logits, axis=-1) == labels
        return {"cost": costs, "is_right": is_right, "is_done": is_done, "accepted": accepted, "rejected": rejected}

    def evaluate(weights: PyTree, split: Split) -> AdaptiveEvaluation:
        num_examples = len(split.labels)
        size = min(batch_size, num_examples)
        parts = []
        for indices, is_counted in padded_batches(num_examples, size):
            values = measure(weights, split.images[indices], split.labels[indices])
            parts.append({name: np.asarray(value)[np.asarray(is_counted) > 0] for name, value in values.items()})
        total = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        num_open = int(np.sum(~total["is_done"]))
        if num_open:
            raise InputError(
                f"`splitting.max_steps` must suffice, but {max_steps} steps did not for {num_open} of {num_examples} "
                "images. Pass a larger number, or a larger --splitting.rtol."
            )
        return AdaptiveEvaluation(
            num_examples,
            float(np.mean(total["cost"])),
            float(np.mean(total["is_right"])),
            float(np.mean(total["accepted"])),
            int(np.min(total["accepted"])),
            int(np.max(total["accepted"])),
            float(np.mean(total["rejected"])),
        )

    return evaluate


def build_evaluator(model: Classifier, batch_size: int) -> Callable[[PyTree, Split], Evaluation]:
    """Return ``evaluate(weights, split)``, compiled once for all splits.

    Args:
        model: gives the structure; its own weights are not used.
        batch_size: images a step; the last batch is padded and the padding is not counted.
    """
    graphdef, _, rest = split_model(model)

    @jax.jit
    def sums(weights: PyTree, images: jax.Array, labels: jax.Array, is_counted: jax.Array) -> jax.Array:
        logits = nnx.merge(graphdef, weights, rest)(images)
        costs = cross_entropy(logits, labels)
        is_right = jnp.argmax(logits, axis=-1) == labels
        return jnp.stack([jnp.sum(is_counted * costs), jnp.sum(is_counted * is_right)])

    def evaluate(weights: PyTree, split: Split) -> Evaluation:
        num_examples = len(split.labels)
        size = min(batch_size, num_examples)
        # Dispatched ahead of being read, so that the device is never kept waiting.
        parts = [
            sums(weights, split.images[indices], split.labels[indices], is_counted)
            for indices, is_counted in padded_batches(num_examples, size)
        ]
        loss, right = (float(sum(float(part[i]) for part in parts)) / num_examples for i in (0, 1))
        return Evaluation(num_examples, loss, right)

    return evaluate
