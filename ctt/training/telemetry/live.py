"""Keeps a view on the terminal up to date, in a thread of its own."""

import threading

from rich.console import Console, RenderableType
from rich.live import Live

REFRESH_SECONDS = 0.25
"""Often enough to look alive; a refresh takes a few milliseconds."""


class LiveView:
    """A renderable at the bottom of a terminal; lines scroll above it.

    The refreshing thread is not rich's own: rich lets a line that is printed while a refresh changes the height of the
    view tear the screen, hence one lock for both.
    """

    def __init__(self, view: RenderableType, console: Console):
        """Prepare; nothing is drawn yet.

        Args:
            view: drawn anew at every refresh.
            console: the terminal.
        """
        self._view, self._console = view, console
        self._width = console.size.width
        self._live = Live(console=console, get_renderable=self._current, auto_refresh=False)
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="ctt-live-view", daemon=True)

    def start(self) -> None:
        """Draw, and go on drawing."""
        self._live.start(refresh=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print a line above the view.

        Args:
            text: the line.
        """
        with self._lock:
            self._console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        """Draw a last time and give the terminal back."""
        self._end.set()
        try:
            self._thread.join()
        finally:
            self._live.stop()

    def _refresh(self) -> None:
        while not self._end.wait(REFRESH_SECONDS):
            with self._lock:
                self._live.refresh()

    def _current(self) -> RenderableType:
        width = self._console.size.width
        if width < self._width:  # The terminal has wrapped the lines of the last view, which cannot be found again.
            self._console.clear()
        self._width = width
        return self._view
