"""Ctrl-C and SIGTERM: finish the step, save, leave."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
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
        latest: the last signal that any watch of this process noted, for who repeats runs; or None.
    """

    latest: int | None = None

    def __init__(self, tell: Callable[[], None]):
        """Start with no signal received.

        Args:
            tell: tells a person that the run is about to stop; called by the handler of the signal.
        """
        self.received: int | None = None
        self._tell = tell

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
        self.received = SignalWatch.latest = signum
        self._tell()


@contextlib.contextmanager
def watch_signals(tell: Callable[[], None]) -> Iterator[SignalWatch]:
    """Note SIGINT and SIGTERM instead of dying of them, within a ``with`` block.

    Outside the main thread Python delivers no signals, and nothing is watched.

    Args:
        tell: tells a person that the run is about to stop; called by the handler of the signal.
    """
    watch = SignalWatch(tell)
    if threading.current_thread() is not threading.main_thread():
        yield watch
        return
    previous = {signum: signal.signal(signum, watch.note) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield watch
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
