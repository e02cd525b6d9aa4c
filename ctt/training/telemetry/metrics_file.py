"""`metrics.jsonl`, the record of a run's measures."""

from collections.abc import Mapping
from typing import Any

from ctt.training.directory import RunDirectory


class MetricsFile:
    """`metrics.jsonl` of a run directory, one object a line with `step`, `split` and values."""

    def __init__(self, directory: RunDirectory):
        """Use the file of a run; nothing is read or written yet.

        Args:
            directory: the run directory.
        """
        self._directory = directory

    def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `ctt.training.telemetry.sink.Sink`."""
        self._directory.append_metrics({"step": step, "split": split, **values})

    def rewind(self, step: int) -> None:
        """See `ctt.training.telemetry.sink.Sink`."""
        if self._directory.metrics.exists():
            self._directory.rewind_metrics(step)

    def close(self) -> None:
        """See `ctt.training.telemetry.sink.Sink`."""
