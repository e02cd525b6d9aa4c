"""Keeps a view on the terminal up to date, in a thread of its own."""

from rich.console import Console, RenderableType
from rich.live import Live

REFRESHES_PER_SECOND = 4.0
"""Often enough to look alive, and a few milliseconds each."""


class LiveView:
    """A renderable at the bottom of a terminal; what the console prints meanwhile scrolls above it."""

    def __init__(self, view: RenderableType, console: Console):
        """Prepare; nothing is drawn yet.

        Args:
            view: drawn anew at every refresh.
            console: the terminal.
        """
        self._view, self._console = view, console
        self._width = console.size.width
        self._live = Live(
            console=console, get_renderable=self._current, refresh_per_second=REFRESHES_PER_SECOND, transient=False
        )

    def start(self) -> None:
        """Draw, and go on drawing."""
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Draw a last time and give the terminal back."""
        self._live.stop()

    def _current(self) -> RenderableType:
        return self._view
