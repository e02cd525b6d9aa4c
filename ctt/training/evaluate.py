"""Loss and accuracy on a whole split; `ctt.training.evaluation` has the other measures."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Bool

from ctt.data.dataset import Split
from ctt.data.sampler import padded_batches
from ctt.models.classifier import Classifier
from ctt.training.devices import Layout
from ctt.training.loss import cross_entropy
from ctt.typing import Array, Float, Labels, Logits, PyTree


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


def split_model(model: Classifier) -> tuple[nnx.GraphDef, PyTree, PyTree]:
    """Return a model's structure in evaluation, its weights with their running averages, and the rest.

    Args:
        model: the model; it is not changed.
    """
    model = nnx.merge(*nnx.split(model))
    model.eval()
    graphdef, weights, rest = nnx.split(model, (nnx.Param, nnx.BatchStat), ...)  # pyright: ignore[reportAssignmentType]
    return graphdef, weights, rest


def is_right(logits: Logits, labels: Labels) -> Bool[Array, " batch"]:
    """Return whether the largest logit, the first of equal ones, is the label's; never where they have no softmax.

    Args:
        logits: `[batch, classes]`.
        labels: the true classes `[batch]`.
    """
    # The place of the largest is that of a NaN, which may be the label's; of equal infinities none is the largest.
    return (jnp.argmax(logits, axis=-1) == labels) & jnp.isfinite(jnp.max(logits, axis=-1))


def sum_measures(logits: Logits, labels: Labels, is_counted: Float[Array, " batch"]) -> Float[Array, "2"]:
    """Return the sums of the losses and of the right answers over the examples that are counted.

    Args:
        logits: `[batch, classes]`.
        labels: the true classes `[batch]`.
        is_counted: 1 for an example, 0 for padding `[batch]`.
    """
    costs = cross_entropy(logits, labels)
    return jnp.stack([jnp.sum(is_counted * costs), jnp.sum(is_counted * is_right(logits, labels))])


def build_evaluator(
    model: Classifier, batch_size: int, layout: Layout | None = None
) -> Callable[[PyTree, Split], Evaluation]:
    """Return ``evaluate(weights, split)``, compiled once for all splits.

    Args:
        model: gives the structure; its own weights are not used.
        batch_size: images a step; the last batch is padded and the padding is not counted.
        layout: the devices, which share each batch if it can be shared evenly; None: the first one alone.
    """
    graphdef, _, rest = split_model(model)

    def sums(weights: PyTree, images: jax.Array, labels: jax.Array, is_counted: jax.Array) -> jax.Array:
        logits = nnx.merge(graphdef, weights, rest)(images)
        return sum_measures(logits, labels, is_counted)

    compiled = jax.jit(sums) if layout is None else jax.jit(sums, out_shardings=layout.whole)

    def place(*arrays: np.ndarray) -> PyTree:
        if layout is None:
            return arrays
        is_even = len(arrays[0]) % layout.num_shares == 0
        return layout.place(arrays, layout.batch() if is_even else layout.whole)

    def evaluate(weights: PyTree, split: Split) -> Evaluation:
        num_examples = len(split.labels)
        size = min(batch_size, num_examples)
        # Dispatched ahead of being read, so that the device is never kept waiting.
        parts = [
            compiled(weights, *place(split.images[indices], split.labels[indices], is_counted))
            for indices, is_counted in padded_batches(num_examples, size)
        ]
        loss, right = (float(sum(float(part[i]) for part in parts)) / num_examples for i in (0, 1))
        return Evaluation(num_examples, loss, right)

    return evaluate
