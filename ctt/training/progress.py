"""What a person sees while a run trains: a live view on a terminal, plain lines elsewhere."""

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ctt.training.telemetry.live import LiveView
from ctt.training.telemetry.view import RunFacts, RunView


class Reporter(Protocol):
    """Where the loop reports to."""

    def introduce(self, facts: RunFacts) -> None:
        """Say what the next piece of work is: the training of a run.

        Args:
            facts: what does not change while it trains.
        """
        ...

    def start(self, description: str, total: int, done: int) -> None:
        """Begin a piece of long work.

        Args:
            description: what it is.
            total: number of steps.
            done: how many of them are done already.
        """
        ...

    def advance(self, done: int, text: str, *, is_milestone: bool) -> None:
        """Show how far the work is.

        Args:
            done: number of finished steps.
            text: the latest measures.
            is_milestone: whether a plain log should keep this line.
        """
        ...

    def show(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Take in what was measured, as a sink does; between `introduce` and `start`, of earlier sessions.

        Args:
            step: number of finished steps.
            split: what was measured on.
            values: measures by name.
        """
        ...

    def mark_saved(self, step: int) -> None:
        """Take in that a checkpoint was saved just now.

        Args:
            step: number of finished steps in it.
        """
        ...

    def note_stop(self) -> None:
        """Show that a signal asked the run to stop; called by the handler of the signal, amid anything."""
        ...

    def say(self, text: str) -> None:
        """Print a line that stays.

        Args:
            text: the line.
        """
        ...

    def stop(self) -> None:
        """End the piece of work."""
        ...


class TerminalReporter:
    """A live view of a run, and a progress bar for any other long work, by rich."""

    def __init__(self, console: Console):
        """Report to a terminal.

        Args:
            console: the terminal.
        """
        self._console = console
        self._progress: Progress | None = None
        self._facts: RunFacts | None = None
        self._view: RunView | None = None
        self._live: LiveView | None = None
        self._measured: list[tuple[int, str, Mapping[str, Any]]] = []

    def introduce(self, facts: RunFacts) -> None:
        """See `Reporter`."""
        self._facts, self._measured = facts, []

    def start(self, description: str, total: int, done: int) -> None:
        """See `Reporter`."""
        self.stop()
        if self._facts is not None:
            self._view = RunView(self._facts, total, done)
            for measured in self._measured:
                self._view.show(*measured)
            self._facts, self._measured = None, []
            self._live = LiveView(self._view, self._console)
            self._live.start()
            return
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )
        self._progress.add_task(description, total=total, completed=done, text="")
        self._progress.start()

    def advance(self, done: int, text: str, *, is_milestone: bool) -> None:
        """See `Reporter`."""
        del is_milestone
        if self._view is not None:
            self._view.advance(done)
        if self._progress is not None:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=done, text=text or self._progress.tasks[0].fields["text"])

    def show(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `Reporter`."""
        if self._view is None:
            self._measured.append((step, split, dict(values)))
        else:
            self._view.show(step, split, values)

    def mark_saved(self, step: int) -> None:
        """See `Reporter`."""
        if self._view is not None:
            self._view.mark_saved(step)

    def note_stop(self) -> None:
        """See `Reporter`."""
        if self._view is not None:
            self._view.note_stop()
        else:
            _write_stop()

    def say(self, text: str) -> None:
        """See `Reporter`."""
        if self._live is not None:
            self._live.say(text)
        else:
            self._console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        """See `Reporter`."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if self._live is not None:
            self._live.stop()
            self._live = self._view = None


class LineReporter:
    """Plain lines, for logs and pipes."""

    def __init__(self, console: Console):
        """Report to a stream.

        Args:
            console: the stream.
        """
        self._console = console
        self._description, self._total, self._begin, self._offset = "", 0, 0.0, 0

    def introduce(self, facts: RunFacts) -> None:
        """See `Reporter`."""

    def start(self, description: str, total: int, done: int) -> None:
        """See `Reporter`."""
        self._description, self._total, self._begin, self._offset = description, total, time.monotonic(), done

    def advance(self, done: int, text: str, *, is_milestone: bool) -> None:
        """See `Reporter`."""
        if is_milestone:
            elapsed = time.monotonic() - self._begin
            left = elapsed / max(done - self._offset, 1) * (self._total - done)
            self.say(f"{self._description} {done}/{self._total}  {text}  {left:.0f} s left")

    def show(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `Reporter`; the text of `advance` has them."""

    def mark_saved(self, step: int) -> None:
        """See `Reporter`."""

    def note_stop(self) -> None:
        """See `Reporter`."""
        _write_stop()

    def say(self, text: str) -> None:
        """See `Reporter`."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """See `Reporter`."""


class SilentReporter:
    """Nothing, for library use."""

    def introduce(self, facts: RunFacts) -> None:
        """See `Reporter`."""

    def start(self, description: str, total: int, done: int) -> None:
        """See `Reporter`."""

    def advance(self, done: int, text: str, *, is_milestone: bool) -> None:
        """See `Reporter`."""

    def show(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `Reporter`; the text of `advance` has them."""

    def mark_saved(self, step: int) -> None:
        """See `Reporter`."""

    def note_stop(self) -> None:
        """See `Reporter`."""
        _write_stop()

    def say(self, text: str) -> None:
        """See `Reporter`."""

    def stop(self) -> None:
        """See `Reporter`."""


def _write_stop() -> None:
    """Write past Python's own streams, which may be in the middle of a write when a signal comes."""
    os.write(2, b"\nStopping after this step and a checkpoint; once more to stop at once.\n")


def build_reporter() -> Reporter:
    """Return the reporter that fits standard output: lines where it is no terminal, or one that cannot move back."""
    console = Console()
    can_draw = console.is_terminal and not console.is_dumb_terminal and not console.options.ascii_only
    return TerminalReporter(console) if can_draw else LineReporter(console)


def describe_measures(values: Mapping[str, float]) -> str:
    """Return the measures of a training window as a line of a plain log says them.

    Args:
        values: measures by name; those that are missing are left out.

    Example:
        >>> describe_measures({"loss": 1.25, "accuracy": 0.5, "images_per_second": 1234.0, "input_stall": 0.001})
        'loss 1.250  accuracy 50.0%  1,234 images/s  stall 0.1%'
    """
    forms = {
        "loss": "loss {:.3f}",
        "accuracy": "accuracy {:.1%}",
        "images_per_second": "{:,.0f} images/s",
        "input_stall": "stall {:.1%}",
        "host_overhead": "overhead {:.1%}",
    }
    return "  ".join(form.format(values[name]) for name, form in forms.items() if name in values)
