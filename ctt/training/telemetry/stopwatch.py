"""Where the time of training goes: throughput, and why the device had nothing to do."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

Interval = tuple[float, float]


class _Launch(NamedTuple):
    time: float
    waits: list[Interval]
    results: list[Any]


class Stopwatch:
    """Takes the time of the parts of the loop, and watches when the device has nothing to do.

    The loop wraps each of its parts in the block named after it. `measures` speaks of the window since it was last
    called, without the pauses, and begins a new one:

    * ``images_per_second``: of the window; ``mean_images_per_second``: since the stopwatch was started.
    * ``step_seconds``: wall time an optimiser step.
    * ``input_stall``: share of the wall time in which the device had nothing to do while the loop waited for input. A
      wait during which the device still works on what it was given before costs nothing, and is not counted.
    * ``host_overhead``: share of the wall time in which the device had nothing to do for any other reason.
    * ``compile_seconds``: spent in `compiling` so far.

    The device has nothing to do from the moment at which the results of a dispatch are there until the next dispatch
    returns. A thread that sleeps until the results are there takes the first moment, late by its time to wake up (some
    0.1 ms a dispatch, and up to 5 ms where the loop is busy in Python), so that the shares are a little too small;
    launching counts as idle, which makes them a little too large. On a CPU, where a dispatch may compute before it
    returns, the second moment is that of its call. Gaps between the kernels of a dispatch are no part of it: for
    these there is `ctt.training.telemetry.profiler.Profiler`.

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
        self._pause_begin: float | None = None
        self._waits: list[Interval] = []
        self._launches: queue.Queue[_Launch | None] = queue.Queue()
        self._watcher: threading.Thread | None = None
        self._reset()

    def _reset(self) -> None:
        self._images, self._steps = 0, 0
        self._stall = self._overhead = self._paused = 0.0

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
        self._waits.append((begin, self._clock()))

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
        self._launches.put(_Launch(launched, self._waits, results))
        self._waits = []

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Wrap what is no training: evaluation, saving. It waits for the results of all dispatches first."""
        now = self._settle()
        if self._pause_begin is not None:  # A part of a longer pause.
            yield
            return
        self._pause_begin = now
        yield
        self._settle()
        self._pause_begin = None

    def measures(self) -> dict[str, float]:
        """Return the measures of the window and begin the next. It waits for the results of all dispatches first."""
        now = self._settle()
        seconds = max(now - self._begin - self._paused, 1e-9)
        self._total_images += self._images
        self._total_seconds += seconds
        values = {
            "images_per_second": self._images / seconds,
            "mean_images_per_second": self._total_images / self._total_seconds,
            "step_seconds": seconds / max(self._steps, 1),
            "input_stall": min(self._stall / seconds, 1.0),
            "host_overhead": min(self._overhead / seconds, 1.0),
            "compile_seconds": self.compile_seconds,
        }
        self._begin = now
        self._reset()
        return values

    def close(self) -> None:
        """End the watching thread; the stopwatch must not be used any more."""
        if self._watcher is not None:
            self._launches.put(None)
            self._watcher.join()
            self._watcher = None

    def _settle(self) -> float:
        """Account for everything up to now, and return the time."""
        self._launches.join()
        now = self._clock()
        if self._pause_begin is None:
            self._account(now, self._waits)
        else:
            self._paused += now - self._pause_begin
            self._pause_begin = now
        self._waits, self._idle_since = [], now
        return now

    def _account(self, end: float, waits: list[Interval]) -> None:
        """Add the gap up to `end` to its causes."""
        gap = max(end - self._idle_since, 0.0)
        stall = sum(max(min(last, end) - max(first, self._idle_since), 0.0) for first, last in waits)
        self._stall += stall
        self._overhead += gap - stall

    def _watch(self) -> None:
        """Wait for the results of each dispatch in turn and account for the gaps between them."""
        while (launch := self._launches.get()) is not None:
            with contextlib.suppress(Exception):  # Whoever reads the results is told.
                jax.block_until_ready(launch.results)
            self._account(launch.time, launch.waits)
            self._idle_since = max(self._clock(), launch.time)
            del launch
            self._launches.task_done()
