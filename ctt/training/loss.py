"""The terminal cost: cross-entropy of the logits."""

from typing import TypeAlias

import jax.numpy as jnp
import optax

from ctt.typing import Array, Float, Labels, Logits

Targets: TypeAlias = Labels | Float[Array, "batch classes"]
"""Classes `[batch]`, or the shares of all classes `[batch, classes]`, each row of sum 1."""


def cross_entropy(logits: Logits, labels: Targets, *, label_smoothing: float = 0.0) -> Float[Array, " batch"]:
    """Return ``-sum_c q_c log softmax(logits)_c`` for each example.

    Args:
        logits: `[batch, classes]`, in at least float32.
        labels: classes `[batch]`, or shares of the classes `[batch, classes]`.
        label_smoothing: share of the target q that is spread evenly over all classes, in [0, 1).

    Returns:
        One cost an example `[batch]` [nats].
    """
    if labels.ndim == 1 and not label_smoothing:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    shares = jnp.eye(logits.shape[-1], dtype=logits.dtype)[labels] if labels.ndim == 1 else labels
    return optax.softmax_cross_entropy(logits, optax.smooth_labels(shares, label_smoothing))


def likeliest(labels: Targets) -> Labels:
    """Return the class of the largest share of each example `[batch]`.

    Args:
        labels: classes `[batch]`, or shares of the classes `[batch, classes]`.
    """
    return labels if labels.ndim == 1 else jnp.argmax(labels, axis=-1)
