"""What the compiled loop is fed with: positions of images that live on the device, or the images themselves.

Both give the same batches, functions of the seed and the step.
"""

import math
from typing import Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ctt.config.schema import Config
from ctt.data.dataset import Split
from ctt.data.input import choose_input, find_device_bytes
from ctt.data.sampler import batch_indices
from ctt.data.stream import Stream
from ctt.training.devices import Layout
from ctt.training.milestone import Milestones
from ctt.training.state import Batch
from ctt.typing import Array, PyTree

_STREAM_BYTES = 2**28
"""Size of a chunk of streamed images [bytes] above which it has fewer steps."""


class Feed(Protocol):
    """Batches of consecutive steps, a chunk at a time.

    Attributes:
        rows: at most so many steps a chunk.
    """

    rows: int

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
        self._layout, self._seed, self._batch_size, self.rows = layout, seed, batch_size, rows
        self._num_examples = len(split.labels)
        kept = split.in_memory()
        self._constants = layout.place((kept.images, kept.labels), layout.whole)

    @property
    def constants(self) -> PyTree:
        """The images and the labels."""
        return self._constants

    def take(self, first: int, count: int) -> PyTree:
        """See `Feed`: positions `[rows, batch]`, of which `count` are read."""
        rows = np.zeros((self.rows, self._batch_size), np.int32)
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


class StreamFeed:
    """Batches that the host reads ahead and sends, each host its own part, for sets that do not fit on a device."""

    def __init__(
        self, split: Split, layout: Layout, *, seed: int, batch_size: int, rows: int, steps: range, num_chunks: int = 2
    ):
        """Begin to stream.

        Args:
            split: the training split, in memory or in a file.
            layout: the devices.
            seed: the run's seed.
            batch_size: images a step, on all devices.
            rows: at most so many steps a chunk.
            steps: the steps to come.
            num_chunks: chunks that are read ahead; 0: none.
        """
        self._layout, self.rows, self._num_mine = layout, rows, batch_size // jax.process_count()
        self._shape = split.images.shape[1:]
        self._stream = Stream(
            split,
            seed=seed,
            batch_size=batch_size,
            steps=steps,
            host_index=jax.process_index(),
            num_hosts=jax.process_count(),
            num_ahead=num_chunks * rows,
        )

    @property
    def constants(self) -> PyTree:
        """None: what a step reads comes with it."""
        return ()

    def take(self, first: int, count: int) -> PyTree:
        """See `Feed`: images `[rows, batch, height, width, channels]` and labels, of which `count` are read."""
        images = np.zeros((self.rows, self._num_mine, *self._shape), np.uint8)
        labels = np.zeros((self.rows, self._num_mine), np.int32)
        if count:
            assert first == self._stream.step  # The steps come in their order.
            images[:count], labels[:count] = self._stream.take(count)
        return self._layout.place_shares((images, labels), axis=1)

    def pick(self, constants: PyTree, chunk: PyTree, index: Array) -> Batch:
        """See `Feed`."""
        del constants
        images, labels = (jax.lax.dynamic_index_in_dim(part, index, keepdims=False) for part in chunk)
        return Batch(images, labels)

    def close(self) -> None:
        """See `Feed`."""
        self._stream.close()


def build_feed(config: Config, split: Split, layout: Layout, milestones: Milestones, *, first: int) -> Feed:
    """Return the feed that a config asks for, or that fits the devices.

    Args:
        config: a resolved config.
        split: the training split.
        layout: the devices.
        milestones: the steps at which chunks end in any case, the run's last one among them.
        first: number of finished steps.
    """
    kind: Literal["resident", "stream"] = choose_input(config.data, split.images.nbytes, find_device_bytes())
    seed, batch_size = config.seed, config.training.batch_size
    rows = min(config.training.steps_per_dispatch, milestones.longest)
    batch_indices(seed, first, num_examples=len(split), batch_size=batch_size)  # Compiles, before time is taken.
    if kind == "resident":
        return ResidentFeed(split, layout, seed=seed, batch_size=batch_size, rows=rows)
    rows = max(1, min(rows, _STREAM_BYTES // (batch_size * math.prod(split.images.shape[1:]))))
    steps = range(first, milestones.total)
    return StreamFeed(split, layout, seed=seed, batch_size=batch_size, rows=rows, steps=steps)
