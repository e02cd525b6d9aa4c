"""The gradient of a batch in parts, one after another: memory of a part, the gradient of the whole."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ctt.data.augment import Augmented
from ctt.typing import Array, Key, PyTree

Differentiate = Callable[[PyTree, PyTree, Augmented, Key[Array, " batch"]], tuple[Any, PyTree]]
"""``(params, statistics, batch, keys) -> ((loss, (accuracy, statistics)), gradient)``, means over the batch."""


def accumulate(differentiate: Differentiate, num_parts: int) -> Differentiate:
    """Return the same function of the same batch, computed in equal parts.

    Part m has the examples m, m + num_parts, m + 2 num_parts and so on, so that on several devices, each with a
    contiguous share of the batch, every part is spread over all of them and no example moves. An example has the key
    of its place in the whole batch.

    Args:
        differentiate: the loss and its gradient; it must not change the statistics.
        num_parts: number of parts, >= 1; divides the batch. 1: the function itself.
    """
    if num_parts == 1:
        return differentiate

    def split(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(-1, num_parts, *x.shape[1:]), 1, 0)

    def run(params: PyTree, statistics: PyTree, batch: Augmented, keys: Key[Array, " batch"]) -> tuple[Any, PyTree]:
        def body(total: PyTree, part: tuple[Augmented, Array]) -> tuple[PyTree, None]:
            (loss, (accuracy, _)), gradient = differentiate(params, statistics, *part)
            return jax.tree.map(jnp.add, total, (loss, accuracy, gradient)), None

        parts = jax.tree.map(split, (batch, keys))
        shapes = jax.eval_shape(differentiate, params, statistics, *jax.tree.map(lambda x: x[0], parts))
        (loss, (accuracy, _)), gradient = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        total, _ = jax.lax.scan(body, (loss, accuracy, gradient), parts)
        loss, accuracy, gradient = jax.tree.map(lambda x: x / num_parts, total)
        return (loss, (accuracy, statistics)), gradient

    return run
