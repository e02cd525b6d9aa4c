"""Batches for training that are read ahead by threads, for sets that do not fit on a device."""

import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Int32, UInt8

from ctt.config.error import InputError
from ctt.data.dataset import Split
from ctt.data.sampler import batch_indices, steps_per_epoch


class HostBatch(NamedTuple):
    """What one host feeds to one step, or with another axis in front to several.

    Attributes:
        images: pixels `[local_batch, height, width, channels]`, 0 to 255.
        labels: class of each image `[local_batch]`.
    """

    images: UInt8[np.ndarray, "*steps local_batch height width channels"]
    labels: Int32[np.ndarray, "*steps local_batch"]


class _Reader:
    """Reads one host's part of the batch of any step; it knows nothing of the stream, which may be forgotten."""

    def __init__(self, split: Split, seed: int, batch_size: int, slots: slice):
        self._split, self._seed, self._batch_size, self._slots = split, seed, batch_size, slots
        self._lock = threading.Lock()

    def __call__(self, step: int) -> HostBatch:
        with self._lock:  # So that the permutation of an epoch is drawn once and not by every thread.
            indices = batch_indices(self._seed, step, num_examples=len(self._split), batch_size=self._batch_size)
        mine = indices[self._slots]
        return HostBatch(self._split.images[mine], self._split.labels[mine])


class Stream:
    """The batches of the steps of a run, in order, read ahead by grain's threads.

    Batch number s holds the examples `batch_indices` names for step s, as if they were gathered on the device. It is a
    function of seed and step alone: neither reading ahead, nor the threads, nor the number of hosts, nor where the
    stream begins changes it, and the only state to be kept of a stream is the number of steps done.

    A host reads its slots alone: of `batch_size` slots, host h of n has those from ``h * batch_size / n`` to
    ``(h + 1) * batch_size / n``.

    Attributes:
        step: the step whose batch comes next.

    Example:
        >>> split = Split(np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1), np.arange(6, dtype=np.int32))
        >>> with Stream(split, seed=0, batch_size=2, steps=range(1, 3)) as stream:
        ...     [batch.labels.shape for batch in stream]
        [(2,), (2,)]
    """

    def __init__(
        self,
        split: Split,
        *,
        seed: int,
        batch_size: int,
        steps: range,
        host_index: int = 0,
        num_hosts: int = 1,
        num_threads: int = 4,
        num_ahead: int = 16,
    ):
        """Begin to stream; reading ahead starts with the first batch that is asked for.

        Args:
            split: the training split, in memory or in a file.
            seed: the run's seed, in [0, 2^32).
            batch_size: examples a step, of all hosts together.
            steps: the steps to come, as in ``range(first_step, num_steps)``.
            host_index: number of this host, in [0, num_hosts).
            num_hosts: number of hosts.
            num_threads: threads that read, >= 1.
            num_ahead: batches that are read ahead of the one asked for; 0: none, and no thread.

        Raises:
            InputError: a batch is empty, larger than the split, or cannot be shared evenly by the hosts.
        """
        import grain

        steps_per_epoch(len(split), batch_size)
        if batch_size % num_hosts:
            raise InputError(
                f"`training.batch_size` must be a multiple of {num_hosts}, the number of hosts, got {batch_size}. "
                "Set it in the config file or pass --training.batch_size."
            )
        if not (0 <= host_index < num_hosts and steps.step == 1 and steps.start >= 0):
            raise ValueError(f"There is no host {host_index} of {num_hosts}, or there are no steps {steps}.")
        local = batch_size // num_hosts
        self._stop = max(steps.stop, steps.start)
        self._error: BaseException | None = None
        self.step = steps.start
        # An element is a whole batch: one call of Python and one gather, during which other threads may run.
        read = _Reader(split, seed, batch_size, slice(host_index * local, (host_index + 1) * local))
        options = grain.ReadOptions(
            num_threads=min(num_threads, num_ahead) if num_ahead else 0, prefetch_buffer_size=num_ahead
        )
        source = grain.MapDataset.range(self.step, self._stop).map(read)
        self._batches: Any = iter(source.to_iter_dataset(options))
        self._close = weakref.finalize(self, self._batches.close)  # For a stream that nobody closes.

    def __iter__(self) -> Iterator[HostBatch]:
        """Return the stream itself."""
        return self

    def __next__(self) -> HostBatch:
        """Return the batch of the next step.

        Raises:
            StopIteration: all steps are done.
            ValueError: the stream was closed, or failed before.
        """
        self._require_open()
        if self.step == self._stop:
            raise StopIteration
        try:
            batch = next(self._batches)
        except BaseException as error:
            # Grain would go on behind the batch that is lost.
            self._error = error
            self.close()
            raise
        self.step += 1
        return batch

    def take(self, num_steps: int) -> HostBatch:
        """Return the batches of the next steps, for a dispatch of several.

        Args:
            num_steps: number of steps, >= 1, of any size from call to call.

        Returns:
            Images `[num_steps, local_batch, height, width, channels]` and labels `[num_steps, local_batch]`.

        Raises:
            ValueError: there are not so many steps left, or the stream was closed or failed before.
        """
        self._require_open()
        if not 1 <= num_steps <= self._stop - self.step:
            raise ValueError(f"There are {self._stop - self.step} steps left in the stream, not {num_steps}.")
        batches = [next(self) for _ in range(num_steps)]
        return HostBatch(*(np.stack(parts) for parts in zip(*batches, strict=True)))

    def _require_open(self) -> None:
        if self._error is not None:
            raise ValueError(f"The stream failed at step {self.step}.") from self._error
        if not self._close.alive:
            raise ValueError("The stream is closed.")

    def close(self) -> None:
        """Drop what was read ahead and end the threads; a batch being read is read to its end."""
        self._close()

    def __enter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the stream."""
        self.close()
