"""What the compiled loop is fed with: positions of images that live on the device, or the images themselves.

Both give the same batches, functions of the seed and the step.
"""

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ctt.data.dataset import Split
from ctt.data.sampler import batch_indices
from ctt.training.devices import Layout
from ctt.training.state import Batch
from ctt.typing import Array, PyTree


class Feed(Protocol):
    """Batches of consecutive steps, a chunk at a time."""

    @property
    def constants(self) -> PyTree:
        """Arrays on the device that all steps read."""
        ...

    def take(self, first: int, count: int) -> PyTree:
        """Return what the device needs for the steps ``first, ..., first + count - 1``.

        Args:
            first: number of finished steps, at the first of them.
            count: how many steps, at most the number that the feed was made for.
        """
        ...

    def pick(self, constants: PyTree, chunk: PyTree, index: Array) -> Batch:
        """Return the batch of one step; traced.

        Args:
            constants: see `constants`.
            chunk: what `take` returned.
            index: number of the step in the chunk.
        """
        ...

    def close(self) -> None:
        """Let go of threads and files."""
        ...


class ResidentFeed:
    """The whole training split on the device, as uint8; the host sends positions."""

    def __init__(self, split: Split, layout: Layout, *, seed: int, batch_size: int, rows: int):
        """Put the split onto the devices.

        Args:
            split: the training split.
            layout: the devices.
            seed: the run's seed.
            batch_size: images a step.
            rows: at most so many steps a chunk.
        """
        self._layout, self._seed, self._batch_size, self._rows = layout, seed, batch_size, rows
        self._num_examples = len(split.labels)
        self._constants = layout.place((split.images, split.labels), layout.whole)

    @property
    def constants(self) -> PyTree:
        """The images and the labels."""
        return self._constants

    def take(self, first: int, count: int) -> PyTree:
        """See `Feed`: positions `[rows, batch]`, of which `count` are read."""
        rows = np.zeros((self._rows, self._batch_size), np.int32)
        for index in range(count):
            rows[index] = batch_indices(
                self._seed, first + index, num_examples=self._num_examples, batch_size=self._batch_size
            )
        return self._layout.place(rows, self._layout.batch(axis=1))

    def pick(self, constants: PyTree, chunk: PyTree, index: Array) -> Batch:
        """See `Feed`."""
        images, labels = constants
        positions = jax.lax.dynamic_index_in_dim(chunk, index, keepdims=False)
        sharding = self._layout.batch()
        return Batch(
            jax.lax.with_sharding_constraint(jnp.take(images, positions, axis=0), sharding),
            jax.lax.with_sharding_constraint(jnp.take(labels, positions, axis=0), sharding),
        )

    def close(self) -> None:
        """See `Feed`."""
