"""Where the time of training goes: throughput, waiting for input, idle time of the device."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax


class Stopwatch:
    """Takes the time of the parts of the loop, and watches when the device has nothing to do.

    The loop wraps each of its parts in the block named after it. `measures` speaks of the window since it was last
    called, without the pauses, and begins a new one:

    * ``images_per_second``: of the window; ``mean_images_per_second``: since the stopwatch was started.
    * ``step_seconds``: wall time an optimiser step.
    * ``input_stall``: share of the wall time that the loop spent waiting for input. It is felt only as far as the
      device has finished what it was given before.
    * ``host_overhead``: share of the wall time in which the device had nothing to do, whatever the reason, input
      included: from the moment at which the results of a dispatch are there to the return of the next dispatch. A
      thread that sleeps until the results are there takes the first moment, late by its time to wake up (some 0.1 ms
      a dispatch, and up to 5 ms where the loop is busy in Python), so that the share is a little too small; launching
      counts as idle, which makes it a little too large. Where a dispatch computes before it returns, as on a CPU, the
      second moment is that of its call. The kernels' gaps within a dispatch are no part of it: see `Profiler`.
    * ``compile_seconds``: spent in `compiling` so far.

    Attributes:
        compile_seconds: see above.
    """

    def __init__(self, *, is_inline: bool | None = None, clock: Callable[[], float] = time.monotonic):
        """Start the first window.

        Args:
            is_inline: whether a dispatch may compute before it returns; None: on a CPU.
            clock: gives the time in seconds.
        """
        self._is_inline = jax.default_backend() == "cpu" if is_inline is None else is_inline
        self._clock = clock
        self.compile_seconds = 0.0
        self._total_images, self._total_seconds = 0, 0.0
        self._idle_since = self._begin = clock()
        self._launches: queue.Queue[tuple[float, Any] | None] = queue.Queue()
        self._watcher: threading.Thread | None = None
        self._reset()

    def _reset(self) -> None:
        self._images, self._steps = 0, 0
        self._input = self._idle = self._paused = 0.0

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Wrap what compiles; it is a pause too."""
        begin = self._clock()
        with self.pause():
            yield
        self.compile_seconds += self._clock() - begin

    @contextlib.contextmanager
    def waiting_for_input(self) -> Iterator[None]:
        """Wrap the wait for the next batches."""
        begin = self._clock()
        yield
        self._input += self._clock() - begin

    @contextlib.contextmanager
    def dispatch(self, *, num_steps: int, num_images: int) -> Iterator[Callable[[Any], None]]:
        """Wrap one dispatch; gives a function to call with some of its results, which must not be donated later.

        Args:
            num_steps: optimiser steps of the dispatch.
            num_images: images of all these steps.
        """
        called = self._clock()
        results: list[Any] = []
        yield results.append
        launched = called if self._is_inline else self._clock()
        self._steps += num_steps
        self._images += num_images
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="ctt-stopwatch", daemon=True)
            self._watcher.start()
        self._launches.put((launched, results))

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Wrap what is no training: evaluation, saving; the results of all dispatches must have been waited for."""
        self._launches.join()
        begin = self._clock()
        self._idle += max(begin - self._idle_since, 0.0)
        yield
        self._idle_since = self._clock()
        self._paused += self._idle_since - begin

    def measures(self) -> dict[str, float]:
        """Return the measures of the window and begin the next; the results must have been waited for."""
        self._launches.join()
        now = self._clock()
        idle = self._idle + max(now - self._idle_since, 0.0)
        seconds = max(now - self._begin - self._paused, 1e-9)
        self._total_images += self._images
        self._total_seconds += seconds
        values = {
            "images_per_second": self._images / seconds,
            "mean_images_per_second": self._total_images / self._total_seconds,
            "step_seconds": seconds / max(self._steps, 1),
            "input_stall": min(self._input / seconds, 1.0),
            "host_overhead": min(idle / seconds, 1.0),
            "compile_seconds": self.compile_seconds,
        }
        self._idle_since = self._begin = now
        self._reset()
        return values

    def close(self) -> None:
        """End the watching thread; the stopwatch must not be used any more."""
        if self._watcher is not None:
            self._launches.put(None)
            self._watcher.join()
            self._watcher = None

    def _watch(self) -> None:
        """Wait for the results of each dispatch in turn and add up the gaps between them."""
        while (item := self._launches.get()) is not None:
            launched, results = item
            with contextlib.suppress(Exception):  # Whoever reads the results is told.
                jax.block_until_ready(results)
            self._idle += max(launched - self._idle_since, 0.0)
            self._idle_since = max(self._clock(), launched)
            del item, results
            self._launches.task_done()
