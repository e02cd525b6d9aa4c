"""Where a command may draw."""

import os
from pathlib import Path

from ctt.cli.apart import check_apart
from ctt.config.error import InputError

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def check_figure(path: Path | None, *, json: Path | None, run: Path | None = None) -> None:
    """Refuse a figure that cannot be written before the work, not after it.

    Args:
        path: the file, or None.
        json: the file of `--json`, or None.
        run: a run directory; the names of its own files are kept for them.

    Raises:
        InputError: its suffix is unknown, it stands where another file belongs, or it cannot be written.
    """
    if path is None:
        return
    if path.suffix.lower() not in FIGURE_SUFFIXES:
        raise InputError(f"`--figure` must end in {', '.join(FIGURE_SUFFIXES)}, got `{path}`. Choose another path.")
    check_apart("--figure", path, made=() if json is None else (json,), run=run)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"`--figure` must be a file that can be written, got `{path}`. Choose another path.")
