"""Measures for TensorBoard, written without TensorFlow."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctt.training.telemetry.naming import flatten_measures


class TensorBoardSink:
    """Scalars in event files, such as `train/loss`; each session of a run writes a file of its own.

    The writer with a thread of tensorboardX would hang a run whose disk is full, since nobody empties the queue of a
    dead thread; here every event is on disk when `write` returns.
    """

    def __init__(self, folder: Path):
        """Begin an event file.

        Args:
            folder: the log directory of the run, made if need be.

        Raises:
            OSError: it cannot be written.
        """
        from tensorboardX.event_file_writer import EventsWriter

        folder.mkdir(parents=True, exist_ok=True)
        # Readers take the files in the order of their names, which begin with the time in seconds.
        self._writer = EventsWriter(str(folder / "events"), filename_suffix=f".{time.time_ns()}")

    def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `ctt.training.telemetry.sink.Sink`."""
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        scalars = flatten_measures(split, values)
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()])
        self._write_event(step=step, summary=summary)

    def rewind(self, step: int) -> None:
        """See `ctt.training.telemetry.sink.Sink`; readers hide all earlier events of later steps."""
        from tensorboardX.proto.event_pb2 import SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        self._write_event(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def close(self) -> None:
        """See `ctt.training.telemetry.sink.Sink`."""
        self._writer.close()

    def _write_event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        self._writer.write_event(Event(wall_time=time.time(), **fields))
        self._writer.flush()
