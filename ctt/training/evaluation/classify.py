"""What a model says of every example of a split."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from flax import nnx

from ctt.config.error import InputError
from ctt.data.dataset import Split
from ctt.data.sampler import padded_batches
from ctt.models.classifier import Classifier
from ctt.training.evaluate import Evaluation, is_right, split_model, sum_measures
from ctt.training.evaluation.examples import Examples, describe_examples, join_examples
from ctt.training.loss import cross_entropy
from ctt.typing import Array, PyTree


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


def build_classifier(model: Classifier, batch_size: int) -> Callable[[PyTree, Split], tuple[Evaluation, Examples]]:
    """Return ``classify(weights, split)``, compiled once for all splits.

    Loss and accuracy are those of `ctt.training.evaluate.build_evaluator`.

    Args:
        model: gives the structure; its own weights are not used.
        batch_size: images a step; the last batch is padded and the padding is not counted.
    """
    graphdef, _, rest = split_model(model)

    @jax.jit
    def measure(weights: PyTree, images: Array, labels: Array, is_counted: Array) -> tuple[Array, Array]:
        logits = nnx.merge(graphdef, weights, rest)(images)
        return sum_measures(logits, labels, is_counted), logits

    def classify(weights: PyTree, split: Split) -> tuple[Evaluation, Examples]:
        num_examples = len(split.labels)
        sums: list[np.ndarray] = []
        parts: list[Examples] = []

        def read(values: tuple[Array, Array], labels: np.ndarray, is_counted: np.ndarray) -> None:
            sums.append(np.asarray(values[0]))
            parts.append(describe_examples(np.asarray(values[1])[is_counted > 0], labels[is_counted > 0]))

        waiting = None  # One batch is computed while the one before it is read.
        for indices, is_counted in padded_batches(num_examples, min(batch_size, num_examples)):
            labels = split.labels[indices]
            values = measure(weights, split.images[indices], labels, is_counted)
            if waiting is not None:
                read(*waiting)
            waiting = values, labels, is_counted
        if waiting is not None:
            read(*waiting)
        loss, right = (float(sum(float(part[i]) for part in sums)) / num_examples for i in (0, 1))
        return Evaluation(num_examples, loss, right), join_examples(parts)

    return classify


def build_adaptive_classifier(
    model: Classifier, batch_size: int, *, rtol: float, atol: float, max_steps: int
) -> Callable[[PyTree, Split], tuple[AdaptiveEvaluation, Examples]]:
    """Return ``classify(weights, split)`` with steps that adapt to each image by itself.

    Args:
        model: gives the structure; its own weights are not used.
        batch_size: images a dispatch; changes nothing but speed and memory.
        rtol: relative tolerance of the local error.
        atol: absolute tolerance of the local error.
        max_steps: at most so many steps an image.
    """
    graphdef, _, rest = split_model(model)

    @jax.jit
    def measure(weights: PyTree, images: Array, labels: Array) -> dict[str, Array]:
        model = nnx.merge(graphdef, weights, rest)

        def solve(image: Array) -> tuple[Array, ...]:
            result = model.classify_adaptively(image[None], rtol=rtol, atol=atol, max_steps=max_steps)
            return result.logits[0], result.is_done, result.accepted, result.rejected

        logits, is_done, accepted, rejected = jax.vmap(solve)(images)
        return {
            "logits": logits,
            "cost": cross_entropy(logits, labels),
            "is_right": is_right(logits, labels),
            "is_done": is_done,
            "accepted": accepted,
            "rejected": rejected,
        }

    def classify(weights: PyTree, split: Split) -> tuple[AdaptiveEvaluation, Examples]:
        num_examples = len(split.labels)
        counts: list[dict[str, np.ndarray]] = []
        parts: list[Examples] = []
        for indices, is_counted in padded_batches(num_examples, min(batch_size, num_examples)):
            labels, is_real = split.labels[indices], is_counted > 0
            values = measure(weights, split.images[indices], labels)
            count = {name: np.asarray(value)[is_real] for name, value in values.items()}
            parts.append(describe_examples(count.pop("logits"), labels[is_real]))
            counts.append(count)
        total = {name: np.concatenate([count[name] for count in counts]) for name in counts[0]}
        num_open = int(np.sum(~total["is_done"]))
        if num_open:
            raise InputError(
                f"`splitting.max_steps` must suffice, but {max_steps} steps did not for {num_open} of {num_examples} "
                "images. Pass a larger number, or a larger --splitting.rtol."
            )
        result = AdaptiveEvaluation(
            num_examples,
            float(np.mean(total["cost"])),
            float(np.mean(total["is_right"])),
            float(np.mean(total["accepted"])),
            int(np.min(total["accepted"])),
            int(np.max(total["accepted"])),
            float(np.mean(total["rejected"])),
        )
        return result, join_examples(parts)

    return classify
