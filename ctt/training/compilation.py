"""Compiled programs are kept on disk, so that the same run compiles once; free of jax, which need not be there yet."""

import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ctt.config.cache import cache_folder

MAX_BYTES = 5 * 2**30
"""Size of the folder [bytes] above which the programs used longest ago are dropped."""

_STAMP, _SUFFIX = ".checked", "-cache"
_VARIABLES = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")


class _Program(NamedTuple):
    path: Path
    size: int
    written: float
    used: float


def enable_compilation_cache(folder: Path | None = None) -> str | None:
    """Let jax keep every program that took a second or more to compile, unless the user has decided otherwise.

    A program's key covers the computation, the versions, the flags of XLA and the features of the processor, so the
    folder may be shared by machines of different kinds. It leaves out the number of cores, for which XLA compiles on a
    CPU and which decides how sums are rounded; hence a folder for each number. Loaded or compiled anew, a program is
    then the same, bit for bit. Several processes may use the folder at once.

    Nothing is done where ``JAX_COMPILATION_CACHE_DIR`` or ``JAX_ENABLE_COMPILATION_CACHE`` is set, or jax's own
    configuration names a folder. Before jax is imported the choice is left in the environment, where jax and the
    processes that this one starts will find it.

    Args:
        folder: below it the programs are kept; it need not exist. None: ``xla`` in `ctt.config.cache.cache_folder`.

    Returns:
        A line for the user if the folder cannot be written to, in which case nothing is kept; else None.
    """
    folder = (cache_folder() / "xla" if folder is None else folder).absolute()
    jax = sys.modules.get("jax")
    is_chosen = any(name in os.environ for name in _VARIABLES)
    if is_chosen or (jax is not None and jax.config.jax_compilation_cache_dir is not None):
        return None
    if not _is_writable(folder):
        return (
            f"Compiled programs are not kept: `{folder}` cannot be written to. Name another folder by CTT_CACHE_DIR, "
            "or set JAX_ENABLE_COMPILATION_CACHE=0."
        )
    tidy_programs(folder)
    place = str(folder / f"{visible_cores()}-cores")
    if jax is None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = place
    else:
        jax.config.update("jax_compilation_cache_dir", place)
    return None


def visible_cores() -> int:
    """Return how many cores this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def tidy_programs(folder: Path, max_bytes: int = MAX_BYTES) -> None:
    """Drop programs whose writing was cut short, and the ones used longest ago if there are too many.

    Jax writes an entry in place and never replaces it, so one cut short by a kill or a full disk would be compiled
    anew, with a warning, for ever. Jax's own bound on the size (``jax_compilation_cache_max_size``) keeps a second file
    an entry and stops writing for good once a kill has left one without the other, hence not that one. Every entry is
    read once, at the first call after it was written.

    Args:
        folder: the programs are in it or in folders of it; it need not exist.
        max_bytes: size that is left at most.
    """
    stamp = folder / _STAMP
    try:
        checked = stamp.stat().st_mtime
    except OSError:
        checked = 0.0
    programs = sorted(_programs(folder), key=lambda program: program.used)
    excess = sum(program.size for program in programs) - max_bytes
    is_any_new = False
    for program in programs:
        is_new = program.written >= checked
        is_any_new |= is_new
        if excess > 0 or (is_new and _is_cut_short(program.path)):
            excess -= program.size
            _remove(program.path)
    if is_any_new:
        try:
            stamp.touch()
        except OSError:
            return


def _programs(folder: Path) -> Iterator[_Program]:
    for path in folder.rglob(f"*{_SUFFIX}"):
        try:
            stat = path.stat()
        except OSError:  # Another process has dropped it.
            continue
        yield _Program(path, stat.st_size, stat.st_mtime, max(stat.st_atime, stat.st_mtime))


def _is_cut_short(path: Path) -> bool:
    """Return whether an entry is a zlib stream that ends too early or is none; other compressions are not looked into.

    Jax compresses by zstandard where that is installed; its frames begin with a number of their own.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return False
    if content[:4] == b"\x28\xb5\x2f\xfd":
        return False
    stream = zlib.decompressobj()
    try:
        stream.decompress(content)
    except zlib.error:
        return True
    return not stream.eof


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _is_writable(folder: Path) -> bool:
    """Return whether a folder, which may not exist yet, can be made and written to."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
