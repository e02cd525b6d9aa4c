"""Ctrl-C and SIGTERM: finish the step, save, leave."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from ctt.config.error import RunStoppedError


class Interrupted(RunStoppedError):
    """Training was stopped by a signal after a clean checkpoint.

    Attributes:
        signum: the signal.
        exit_status: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, signum: int, message: str):
        """Describe the interruption.

        Args:
            signum: the signal.
            message: what was saved and how to go on.
        """
        super().__init__(message)
        self.signum = signum
        self.exit_status = 128 + signum


class SignalWatch:
    """Remembers the first signal that asked to stop.

    Attributes:
        received: the signal, or None.
    """

    def __init__(self) -> None:
        """Start with no signal received."""
        self.received: int | None = None

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Note a signal; a second one stops at once.

        Args:
            signum: the signal.
            frame: unused.

        Raises:
            KeyboardInterrupt: it is the second one.
        """
        del frame
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signum
        # Python's own streams may be in the middle of a write when a signal comes.
        os.write(2, b"\nStopping after this step and a checkpoint; once more to stop at once.\n")


@contextlib.contextmanager
def watch_signals() -> Iterator[SignalWatch]:
    """Note SIGINT and SIGTERM instead of dying of them, within a ``with`` block.

    Outside the main thread Python delivers no signals, and nothing is watched.
    """
    watch = SignalWatch()
    if threading.current_thread() is not threading.main_thread():
        yield watch
        return
    previous = {signum: signal.signal(signum, watch.note) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield watch
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
