"""A figure's file, as a flag names it."""

import os
from pathlib import Path

from ctt.config.error import InputError

_KINDS = (".png", ".svg", ".pdf")


def check_figure(flag: str, path: Path | None) -> None:
    """Refuse a file that no figure can be written to, before the work and not after it.

    Args:
        flag: the flag that names it, such as ``--figure``.
        path: the file, or None.

    Raises:
        InputError: its suffix is no known format, or its place cannot be written.
    """
    if path is None:
        return
    if path.suffix.lower() not in _KINDS:
        raise InputError(
            f"`{flag}` must end in {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, which says the format, got `{path}`. "
            f"Pass such as {flag} batch.png."
        )
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"`{flag}` must be a file that can be written, got `{path}`. Choose another path.")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"`{flag}` must be a file that can be written, got `{path}`. Choose another path.")
