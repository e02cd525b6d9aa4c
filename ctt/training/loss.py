"""The terminal cost: cross-entropy of the logits."""

import jax.numpy as jnp
import optax

from ctt.typing import Array, Float, Labels, Logits


def cross_entropy(logits: Logits, labels: Labels, *, label_smoothing: float = 0.0) -> Float[Array, " batch"]:
    """Return ``-sum_c q_c log softmax(logits)_c`` for each example.

    Args:
        logits: `[batch, classes]`, in at least float32.
        labels: `[batch]`.
        label_smoothing: share of the target q that is spread evenly over all classes, in [0, 1).

    Returns:
        One cost an example `[batch]` [nats].
    """
    if not label_smoothing:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    targets = optax.smooth_labels(jnp.eye(logits.shape[-1], dtype=logits.dtype)[labels], label_smoothing)
    return optax.softmax_cross_entropy(logits, targets)
