"""Several updates a dispatch: one compiled loop on the device, so that the host never keeps it waiting."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctt.training.devices import Layout
from ctt.training.feed import Feed
from ctt.training.state import TrainState
from ctt.training.step import Metrics, Update
from ctt.training.telemetry.stopwatch import Stopwatch
from ctt.typing import Array, PyTree

_LONGEST = 0.5
"""Seconds: a chunk is cut so that it takes no longer, for a signal to be heard within two of them."""


@dataclass(frozen=True)
class Landed:
    """The measures of consecutive updates, on the host.

    Attributes:
        first: number of the first of these updates, counted from 1.
        lines: one mapping from names to values an update.
    """

    first: int
    lines: list[dict[str, float]]


class Dispatcher:
    """The update of a run, compiled once for any number of steps up to `rows`.

    The number of steps is an argument of the compiled loop and not a constant of it, so the same program makes them
    all, whichever way they are cut into chunks: how they are cut changes no bit.
    """

    def __init__(
        self,
        update: Update,
        state: TrainState,
        feed: Feed,
        layout: Layout,
        stopwatch: Stopwatch,
        *,
        rows: int,
        batch_size: int,
    ):
        """Compile the loop.

        Args:
            update: the update.
            state: the state to begin with, on any device or none.
            feed: the batches.
            layout: the devices.
            stopwatch: takes the time of the parts.
            rows: at most so many steps a dispatch.
            batch_size: images a step.
        """
        self._feed, self._layout, self._stopwatch = feed, layout, stopwatch
        self._rows, self._batch_size = rows, batch_size
        shardings = layout.cut(state)
        copy = jax.tree.map(jnp.copy, state)  # It will be donated, and the caller keeps his.
        self.state: TrainState = layout.place(copy, shardings)
        chunk = feed.take(0, 0)
        run = jax.jit(_build_loop(update, feed, rows), donate_argnums=0, out_shardings=(shardings, layout.whole))
        with stopwatch.compiling():
            self._run = run.lower(self.state, feed.constants, chunk, self._count(0)).compile()
        self._flying: deque[tuple[int, int, Metrics]] = deque()
        self._step_seconds: float | None = None
        self._last_landing: float | None = None

    def _count(self, count: int) -> Array:
        return self._layout.place(np.asarray(count, np.int32), self._layout.whole)

    def choose(self, limit: int) -> int:
        """Return how many steps to dispatch next: few enough for the host to look up in time.

        Args:
            limit: at most so many.
        """
        if self._step_seconds is None:
            return 1
        return max(1, min(limit, self._rows, int(_LONGEST / self._step_seconds)))

    def dispatch(self, step: int, count: int) -> None:
        """Send off some updates, without waiting for them.

        Args:
            step: number of finished updates.
            count: how many, in [1, rows].
        """
        with self._stopwatch.waiting_for_input():
            chunk = self._feed.take(step, count)
        if not self._flying:
            self._last_landing = time.monotonic()  # The device was idle until now.
        with self._stopwatch.dispatch(num_steps=count, num_images=count * self._batch_size) as submit:
            self.state, metrics = self._run(self.state, self._feed.constants, chunk, self._count(count))
            submit(metrics)
        self._flying.append((step, count, metrics))

    def land(self, *, leave: int = 0) -> list[Landed]:
        """Wait for the updates that are under way, and return their measures.

        Args:
            leave: how many dispatches may stay under way.
        """
        landed = []
        while len(self._flying) > leave:
            step, count, metrics = self._flying.popleft()
            values: dict[str, Any] = jax.device_get(metrics)
            now = time.monotonic()
            if self._last_landing is not None:
                self._step_seconds = max((now - self._last_landing) / count, 1e-9)
            self._last_landing = now
            lines = [{name: float(value[index]) for name, value in values.items()} for index in range(count)]
            landed.append(Landed(step + 1, lines))
        return landed

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""
        jax.block_until_ready(self.state.step)


def _build_loop(update: Update, feed: Feed, rows: int) -> Callable[..., tuple[TrainState, Metrics]]:
    def run(state: TrainState, constants: PyTree, chunk: PyTree, count: Array) -> tuple[TrainState, Metrics]:
        def step(index: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, metrics = carry
            # The barrier keeps the way in which a batch came from being compiled into what is done with it.
            batch = jax.lax.optimization_barrier(feed.pick(constants, chunk, index))
            state, line = update(state, batch)
            return state, {name: metrics[name].at[index].set(value) for name, value in line.items()}

        batch = jax.eval_shape(lambda: feed.pick(constants, chunk, jnp.zeros((), jnp.int32)))
        shapes = jax.eval_shape(update, state, batch)[1]
        metrics = {name: jnp.zeros((rows, *line.shape), line.dtype) for name, line in shapes.items()}
        return jax.lax.fori_loop(0, count, step, (state, metrics))

    return run
