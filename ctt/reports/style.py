"""The house style of figures: what is drawn, in which colours, and how it is written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, FAINT = "#1b1f24", "#5f6873", "#e3e6ea"
"""Text, secondary text, and lines that are only there to guide the eye."""

BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9"
"""Colours that colour-blind readers tell apart (Okabe and Ito, 2008; purple from Tol)."""

SPLITS = {"train": BLUE, "val": ORANGE, "test": GREEN}
"""The colour of each split, in every figure."""

_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelcolor": QUIET,
    "axes.labelsize": 8.5,
    "axes.edgecolor": "#b6bcc4",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
    "svg.hashsalt": "ctt",
    "axes.formatter.limits": (-4, 6),
    "text.parse_math": False,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style, whatever a user's own settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in _SETTINGS.items():
            matplotlib.rcParams[name] = value  # pyright: ignore[reportArgumentType]
        yield


def use_whole_steps(axes: "Axes") -> None:
    """Label the horizontal axis with whole numbers alone, thousands marked.

    Args:
        axes: the axes.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def use_log_scale(axes: "Axes") -> None:
    """Make the vertical axis logarithmic, labelled at 1, 2 and 5 times powers of ten.

    Args:
        axes: the axes.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200 * low else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure, whole or not at all, the same bytes each time.

    Args:
        figure: the figure.
        path: the file; its suffix, ``.png``, ``.svg`` or ``.pdf``, says the format.
    """
    kind = path.suffix[1:].lower()
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    partial = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with house_style():
            figure.savefig(partial, format=kind, metadata=date)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
