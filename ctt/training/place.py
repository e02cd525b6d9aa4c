"""Which folder a run is put into, and whether it goes on there."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.training.devices import agree
from ctt.training.directory import GROUP_FILE, RunDirectory
from ctt.training.group import GroupDirectory
from ctt.training.opening import Resume
from ctt.training.resume import is_same_config

_BEFORE_A_RUN = {"manifest.json", "manifest.json.partial", "config.json.partial", f"{GROUP_FILE}.partial"}
"""Files of a run that was killed before its config was written, which makes it one."""


def choose_folder(
    config: Config,
    *,
    out: Path | None,
    resume: Path | None,
    num_seeds: int | None = None,
    init: Path | None = None,
    root: Path = Path("runs"),
) -> tuple[Path, Resume]:
    """Return the folder of a run or a group, and whether it goes on there.

    Args:
        config: the resolved config.
        out: the folder that was asked for; None: one of its name under `root`.
        resume: the folder to go on in; ``auto``: in `out`, or the newest under `root` that has this config, these seeds
            and these initial weights, if there is one.
        num_seeds: the number of seeds of a group; None: a run.
        init: a run whose weights are the initial ones; None: they are drawn from the seed.
        root: folder of all runs.

    Raises:
        InputError: `out` holds a run, or runs, of other initial weights or another number of seeds.
    """
    name = config.name or "run"
    if resume is not None and str(resume) != "auto":
        return resume, True
    if resume is None:
        return out or _number(root, name, _first_free(root, name)), False
    if out is not None:
        has_begun = any((out / file).is_file() for file in ("config.json", GROUP_FILE))
        if has_begun:
            _check_begun(out, num_seeds, init)
        else:
            _clear_false_start(out)
        return out, "auto" if has_begun else False
    kind, file = (RunDirectory, "config.json") if num_seeds is None else (GroupDirectory, GROUP_FILE)
    for folder in reversed(list(_existing(root, name))):
        is_one = (folder / file).is_file() and is_same_config(kind(folder), config)
        if is_one and (_count_seeds(folder), _find_begin(folder)) == (num_seeds, _read_id(init)):
            return folder, "auto"
    return _number(root, name, _first_free(root, name)), False


def _check_begun(out: Path, num_seeds: int | None, init: Path | None) -> None:
    """Check that a folder has the seeds and the initial weights that are asked for, if any are."""
    remedy = f"Go on with it by `ctt train --resume {shlex.quote(str(out))}` alone, or choose another --out."
    found = _count_seeds(out)
    if num_seeds is not None and found != num_seeds:
        held = "a single run" if found is None else f"the runs of {found} seeds"
        raise InputError(f"`{out}` must hold the runs of --seeds {num_seeds} to go on with, and holds {held}. {remedy}")
    if init is not None and _find_begin(out) != _read_id(init):
        raise InputError(f"`{out}` must have begun with the weights of --init {init}, and did not. {remedy}")


def _count_seeds(folder: Path) -> int | None:
    """Return the number of seeds of a group; None: it is a run."""
    return len(GroupDirectory(folder).read_group()["seeds"]) if GroupDirectory.is_group(folder) else None


def _find_begin(folder: Path) -> str | None:
    """Return the identity of the run that a run or a group began with the weights of, or None."""
    if GroupDirectory.is_group(folder):
        begin = GroupDirectory(folder).read_group()["init"]
    elif (folder / "manifest.json").is_file():
        begin = RunDirectory(folder).read_manifest().get("init")
    else:
        begin = None  # Killed before it had a manifest, which a run of others' weights has before its config.
    return None if begin is None else begin["run_id"]


def _read_id(init: Path | None) -> str | None:
    if init is None:
        return None
    RunDirectory(init).read_config()  # Says of a folder that is no run what it is.
    return RunDirectory(init).read_manifest()["run_id"]


def _number(root: Path, name: str, number: int) -> Path:
    return root / (name if number == 1 else f"{name}-{number}")


def _existing(root: Path, name: str) -> Iterator[Path]:
    number = 1
    while (folder := _number(root, name, number)).exists():
        yield folder
        number += 1


def _first_free(root: Path, name: str) -> int:
    (number,) = agree(1 + sum(1 for _ in _existing(root, name)))  # Of all processes, before one of them makes it.
    return number


def _clear_false_start(folder: Path) -> None:
    """Remove what a kill left in a folder before it became a run."""
    found = list(folder.iterdir()) if folder.is_dir() else []
    if {path.name for path in found} <= _BEFORE_A_RUN:
        for path in found:
            path.unlink(missing_ok=True)  # Another process of the run may have been here.
