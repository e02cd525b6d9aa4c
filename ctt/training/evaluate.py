"""Loss and accuracy on a whole split."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.data.dataset import Split
from ctt.data.sampler import padded_batches
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


def build_evaluator(model: nnx.Module, batch_size: int) -> Callable[[PyTree, Split], Evaluation]:
    """Return ``evaluate(params, split)``, compiled once for all splits.

    Args:
        model: gives the structure; its own weights are not used.
        batch_size: images a step; the last batch is padded and the padding is not counted.
    """
    graphdef, _, rest = nnx.split(model, nnx.Param, ...)

    @jax.jit
    def sums(params: PyTree, images: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
        logits = nnx.merge(graphdef, params, rest)(images)
        costs = cross_entropy(logits, labels)
        is_right = jnp.argmax(logits, axis=-1) == labels
        return jnp.stack([jnp.sum(weights * costs), jnp.sum(weights * is_right)])

    def evaluate(params: PyTree, split: Split) -> Evaluation:
        num_examples = len(split.labels)
        size = min(batch_size, num_examples)
        # Dispatched ahead of being read, so that the device is never kept waiting.
        parts = [
            sums(params, split.images[indices], split.labels[indices], weights)
            for indices, weights in padded_batches(num_examples, size)
        ]
        loss, right = (float(sum(float(part[i]) for part in parts)) / num_examples for i in (0, 1))
        return Evaluation(num_examples, loss, right)

    return evaluate
