"""Where a command that makes or reads a run may put its own files."""

import os
from pathlib import Path

from ctt.config.error import InputError

_RUN_FILES = ("config.json", "manifest.json", "metrics.jsonl", "summary.json", "checkpoints")


def check_apart(flag: str, path: Path | None, *, made: tuple[Path, ...] = (), run: Path | None = None) -> None:
    """Refuse a file or folder that would stand where another one belongs.

    Args:
        flag: the flag that names it, such as ``--json``.
        path: what it names, or None.
        made: files and folders that the command reads or makes; none of them, and nothing inside, may be `path`.
        run: a run directory; the names of its own files are kept for them, there or not.

    Raises:
        InputError: `path` is one of them.
    """
    if path is None:
        return
    place = Path(os.path.realpath(path))
    taken = [Path(os.path.realpath(other)) for other in made]
    if run is not None:
        taken += [Path(os.path.realpath(run)) / name for name in _RUN_FILES]
    if any(other == place or other in place.parents for other in taken):
        raise InputError(
            f"`{flag}` must stand apart from the files that this command reads and makes, got `{path}`. Choose another "
            "path."
        )
