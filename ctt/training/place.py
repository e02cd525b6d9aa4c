"""Which folder a run is put into, and whether it goes on there."""

from collections.abc import Iterator
from pathlib import Path

from ctt.config.schema import Config
from ctt.training.devices import agree
from ctt.training.directory import GROUP_FILE, RunDirectory
from ctt.training.group import GroupDirectory
from ctt.training.opening import Resume
from ctt.training.resume import is_same_config

_BEFORE_A_RUN = {"manifest.json", "manifest.json.partial", "config.json.partial", f"{GROUP_FILE}.partial"}
"""Files of a run that was killed before its config was written, which makes it one."""


def choose_folder(
    config: Config, *, out: Path | None, resume: Path | None, is_group: bool, root: Path = Path("runs")
) -> tuple[Path, Resume]:
    """Return the folder of a run or a group, and whether it goes on there.

    Args:
        config: the resolved config.
        out: the folder that was asked for; None: one of its name under `root`.
        resume: the folder to go on in; ``auto``: in `out`, or the newest under `root` that has this config, if there is
            one.
        is_group: whether it is one of several seeds.
        root: folder of all runs.
    """
    name = config.name or "run"
    if resume is not None and str(resume) != "auto":
        return resume, True
    if resume is None:
        return out or _number(root, name, _first_free(root, name)), False
    if out is not None:
        has_begun = any((out / file).is_file() for file in ("config.json", GROUP_FILE))
        if not has_begun:
            _clear_false_start(out)
        return out, "auto" if has_begun else False
    kind, file = (GroupDirectory, GROUP_FILE) if is_group else (RunDirectory, "config.json")
    for folder in reversed(list(_existing(root, name))):
        if (folder / file).is_file() and is_same_config(kind(folder), config):
            return folder, "auto"
    return _number(root, name, _first_free(root, name)), False


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
