"""A JAX trace of some steps of a run."""

import shlex
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import jax


class Profiler:
    """Traces some steps, then says where the trace is; use it in a ``with`` block, which stops it whatever happens.

    Example:
        with Profiler(run / "profile", first_step=10, num_steps=20, say=print) as profiler:
            while step < total:
                profiler.advance(step)  # `step` updates are finished, or on their way.
                ...
    """

    def __init__(self, folder: Path, first_step: int, num_steps: int, say: Callable[[str], None]):
        """Set what is traced; nothing is done yet.

        Args:
            folder: where the trace goes, made if need be.
            first_step: number of finished updates at which tracing begins, past those that compile and warm up.
            num_steps: number of updates that are traced, at least; a dispatch of several is traced as a whole.
            say: where a person reads.
        """
        self._folder, self._say = folder, say
        self._first, self._last = first_step, first_step + num_steps
        self._began: int | None = None
        self._step = 0
        self._is_done = num_steps < 1

    def __enter__(self) -> "Profiler":
        """Return the profiler."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop tracing, if it is going on; what goes wrong then does not hide an earlier exception."""
        try:
            self._stop()
        except Exception as failure:
            if error is None:
                raise
            self._say(f"Warning: the trace could not be written ({failure}).")
        if error is None and self._began is None and not self._is_done:
            self._say(f"Warning: nothing was traced, since training ended before step {self._first}.")

    def advance(self, step: int, wait: Callable[[], object] = lambda: None) -> None:
        """Begin or end tracing where it is time.

        Args:
            step: number of updates that are finished or dispatched.
            wait: returns when the device has finished them; called where tracing begins and ends, so that the trace
                has whole steps.
        """
        self._step = step
        if self._began is None and not self._is_done and step >= self._first:
            wait()
            self._folder.mkdir(parents=True, exist_ok=True)
            jax.profiler.start_trace(self._folder)
            self._began = step
        elif self._began is not None and step >= self._last:
            wait()
            self._stop()

    def _stop(self) -> None:
        if self._began is None or self._is_done:
            return
        self._is_done = True
        jax.profiler.stop_trace()
        newest = max(self._folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime, default=None)
        place = shlex.quote(str(self._folder))
        self._say(
            f"Trace of steps {self._began + 1} to {self._step}: {newest.parent if newest else self._folder}. "
            f"Look at it by: tensorboard --logdir {place} (with the package xprof), or open its .trace.json.gz at "
            "https://ui.perfetto.dev."
        )
