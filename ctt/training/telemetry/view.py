"""The live view of a run on a terminal: how far it is, how it learns, and what it costs."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ctt.training.telemetry.curve import Point, draw_curve

_LINE, _MARK = "cyan", "bold yellow"
_MAX_POINTS = 4000
_WIDE, _LOW = 110, 9
"""Width from which the curve stands beside the measures, and height below which there is no frame."""
_HEADING, _TABLE = 7, 58
"""Widths of the measures' headings, and of their table beside the curve."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What does not change while a run trains.

    Attributes:
        name: of the run.
        scheme: how it steps through its depth, as a reader says it.
        place: its folder.
        steps_per_epoch: optimiser steps of a pass over the training split.
    """

    name: str
    scheme: str
    place: str
    steps_per_epoch: float


class RunView:
    """What is known of a run, as rich draws it at any size of the terminal."""

    def __init__(self, facts: RunFacts, total: int, done: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin at a step.

        Args:
            facts: what does not change.
            total: optimiser steps of the run.
            done: how many of them are done already.
            clock: gives the time in seconds.
        """
        self._facts, self._total, self._done, self._first, self._clock = facts, total, done, done, clock
        self._begin = clock()
        self._train: dict[str, float] = {}
        self._line: list[Point] = []
        self._marks: list[Point] = []
        self._last_val: tuple[int, float] | None = None
        self._best_val: tuple[int, float] | None = None
        self._saved: tuple[int, float] | None = None
        self._is_stopping = False

    def advance(self, done: int) -> None:
        """Set how far the run is.

        Args:
            done: number of finished steps.
        """
        self._done = done

    def show(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Take in what was measured.

        Args:
            step: number of finished steps.
            split: ``train``, ``val``, or another, which is not shown.
            values: measures by name.
        """
        loss, accuracy = values.get("loss"), values.get("accuracy")
        points = [(float(step), loss)] if isinstance(loss, float) and math.isfinite(loss) else []
        if split == "train":
            self._train = {name: value for name, value in values.items() if isinstance(value, int | float)}
            self._line = _thin([*self._line, *points])
        elif split == "val":
            self._marks = _thin([*self._marks, *points])
            if isinstance(accuracy, float):
                self._last_val = (step, accuracy)
                if self._best_val is None or accuracy > self._best_val[1]:
                    self._best_val = (step, accuracy)

    def note_stop(self) -> None:
        """Show that the run is about to stop."""
        self._is_stopping = True

    def mark_saved(self, step: int) -> None:
        """Note that a checkpoint was saved just now.

        Args:
            step: number of finished steps in it.
        """
        self._saved = (step, self._clock())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the view, fitted to the terminal."""
        width, height = options.max_width, console.size.height
        if height < _LOW or width < 40:
            yield self._progress(width)
            if height > 2:
                yield self._notice(width) if self._is_stopping else self._learning(width)
            return
        inside, is_wide = width - 4, width >= _WIDE
        measures = self._measures((_TABLE if is_wide else inside) - _HEADING)[: height - 5]
        if not self._line or height < len(measures) + 8:
            body: RenderableType = _table(measures)
        elif is_wide:
            rows = min(12, max(len(measures), height - 12))
            body = Table.grid(padding=(0, 3))
            body.add_row(Group(*self._curve(inside - _TABLE - 3, rows)), _table(measures))
        else:
            rows = min(8, height - len(measures) - 6)
            body = Group(*self._curve(inside, rows), Text(), _table(measures))
        facts = self._facts
        yield Panel(
            Group(self._progress(inside), self._notice(inside), body),
            title=_fit(Text.assemble((facts.name, "bold"), f" · {facts.scheme}"), width - 8),
            title_align="left",
            subtitle=_fit(Text(facts.place, style="dim"), width - 8),
            subtitle_align="right",
            border_style="dim",
            width=width,
        )

    def _progress(self, width: int) -> RenderableType:
        done, total, facts = self._done, self._total, self._facts
        elapsed = self._clock() - self._begin
        fresh = done - self._first
        left = f"{_duration(elapsed / fresh * (total - done))} left" if fresh else "-- left"
        epoch, epochs = done / facts.steps_per_epoch, total / facts.steps_per_epoch
        before = Text(f"step {done:,}/{total:,}", style="bold", no_wrap=True)
        if width >= 76:
            before.append(f"  epoch {epoch:.1f}/{epochs:.1f}", "not bold")
        after = Text(f"{done / max(total, 1):4.0%}  {left}", no_wrap=True)
        if width >= 68:
            after.append(f"  {_duration(elapsed)} elapsed", "dim")
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_row(before, ProgressBar(max(total, 1), done), after)
        return grid

    def _notice(self, width: int) -> Text:
        text = "Stopping after this step and a checkpoint; once more to stop at once." if self._is_stopping else ""
        return _fit(Text(text, style="bold yellow", no_wrap=True), width)

    def _curve(self, width: int, rows: int) -> list[Text]:
        legend = Text.assemble(("── train loss", _LINE), "   ", ("● val loss", _MARK), no_wrap=True)
        line, marks = list(self._line), list(self._marks)
        return [*draw_curve(line, marks, width=width, height=rows - 1, styles=(_LINE, _MARK)), legend]

    def _learning(self, width: int) -> Text:
        number = self._number
        parts = [number("loss {:.4g}", "loss"), number("accuracy {:.1%}", "accuracy")]
        return _join([*parts, number("{:,.0f} images/s", "images_per_second")], width)

    def _measures(self, width: int) -> list[tuple[str, Text]]:
        """Return the lines of measures that there are, each with its heading."""
        number, best, last, saved = self._number, None, None, None
        if self._best_val is not None and self._last_val is not None:
            last = f"accuracy {self._last_val[1]:.2%} at {self._last_val[0]:,}"
            best = f"best {self._best_val[1]:.2%} at {self._best_val[0]:,}"
        if self._saved is not None:
            saved = f"step {self._saved[0]:,}, {_duration(self._clock() - self._saved[1])} ago"
        compiled, rate = number("compiled {:.1f} s", "compile_seconds"), number("rate {:.2e}", "learning_rate")
        norms = {"gradient_norm": "gradient {:.3g}", "update_norm": "update {:.3g}", "parameter_norm": "weights {:.4g}"}
        rows: list[tuple[str, list[str | None]]] = [
            ("train", [number("loss {:.4g}", "loss"), number("accuracy {:.1%}", "accuracy"), rate]),
            ("val", [last, best]),
            ("norms", [number(form, name) for name, form in norms.items()]),
            ("speed", [number("{:,.0f} images/s", "images_per_second"), self._step_time(), compiled]),
            ("idle", [number("input stall {:.1%}", "input_stall"), number("host overhead {:.1%}", "host_overhead")]),
            ("memory", [self._memory("device_memory_bytes", "device"), self._memory("host_memory_bytes", "host")]),
            ("saved", [saved]),
        ]
        return [(name, _join(parts, width)) for name, parts in rows if any(parts)]

    def _number(self, form: str, name: str) -> str | None:
        value = self._train.get(name)
        return None if value is None else form.format(value)

    def _step_time(self) -> str | None:
        seconds = self._train.get("step_seconds")
        if seconds is None:
            return None
        return f"{seconds:.2f} s a step" if seconds >= 1 else f"{seconds * 1e3:.3g} ms a step"

    def _memory(self, name: str, where: str) -> str | None:
        value = self._train.get(name)
        return None if value is None else f"{value / 2**30:.2f} GiB on the {where}, at most"


def _table(rows: list[tuple[str, Text]]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True, min_width=_HEADING - 1)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, text in rows:
        table.add_row(name, text)
    return table


def _join(parts: Iterable[str | None], width: int) -> Text:
    """Return as many of the parts as there is room for."""
    line = ""
    for part in parts:
        longer = f"{line}   {part}" if line else part or ""
        if part and len(longer) <= width:
            line = longer
    return Text(line, no_wrap=True)


def _fit(text: Text, width: int) -> Text:
    text.truncate(max(width, 1), overflow="ellipsis")
    return text


def _thin(points: list[Point]) -> list[Point]:
    """Return at most so many points as a terminal can show, the newest kept."""
    return points if len(points) <= _MAX_POINTS else [*points[:-1:2], points[-1]]


def _duration(seconds: float) -> str:
    """Return a duration as a reader says it.

    Example:
        >>> [_duration(s) for s in (3, 190, 7384, 200000)]
        ['3 s', '3 min 10 s', '2 h 03 min', '2 d 7 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
