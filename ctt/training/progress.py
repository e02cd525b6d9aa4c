"""What a person sees while a run trains: a progress bar on a terminal, plain lines elsewhere."""

import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Reporter(Protocol):
    """Where the loop reports to."""

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
    """A progress bar with measures and the time left, by rich."""

    def __init__(self, console: Console):
        """Report to a terminal.

        Args:
            console: the terminal.
        """
        self._console = console
        self._progress: Progress | None = None

    def start(self, description: str, total: int, done: int) -> None:
        """See `Reporter`."""
        self.stop()
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
        if self._progress is not None:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=done, text=text or self._progress.tasks[0].fields["text"])

    def say(self, text: str) -> None:
        """See `Reporter`."""
        self._console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        """See `Reporter`."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class LineReporter:
    """Plain lines, for logs and pipes."""

    def __init__(self, console: Console):
        """Report to a stream.

        Args:
            console: the stream.
        """
        self._console = console
        self._description, self._total, self._begin, self._offset = "", 0, 0.0, 0

    def start(self, description: str, total: int, done: int) -> None:
        """See `Reporter`."""
        self._description, self._total, self._begin, self._offset = description, total, time.monotonic(), done

    def advance(self, done: int, text: str, *, is_milestone: bool) -> None:
        """See `Reporter`."""
        if is_milestone:
            elapsed = time.monotonic() - self._begin
            left = elapsed / max(done - self._offset, 1) * (self._total - done)
            self.say(f"{self._description} {done}/{self._total}  {text}  {left:.0f} s left")

    def say(self, text: str) -> None:
        """See `Reporter`."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """See `Reporter`."""


class SilentReporter:
    """Nothing, for library use."""

    def start(self, description: str, total: int, done: int) -> None:
        """See `Reporter`."""

    def advance(self, done: int, text: str, *, is_milestone: bool) -> None:
        """See `Reporter`."""

    def say(self, text: str) -> None:
        """See `Reporter`."""

    def stop(self) -> None:
        """See `Reporter`."""


def build_reporter() -> Reporter:
    """Return the reporter that fits standard output."""
    console = Console()
    return TerminalReporter(console) if console.is_terminal else LineReporter(console)
