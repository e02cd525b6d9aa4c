"""Draw a run, finished or not: learning curves, its first batch, the splitting error, and one page with all of it.

  ctt report runs/cifar10_vit_tiny
The page needs no network. A run directory that cannot be written is read all the same:
  ctt report /archive/run --out report --no-batch
"""

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ctt.cli.apart import check_apart
from ctt.cli.command import CommonArguments, RunPath, parse, write_json
from ctt.config.error import InputError

if TYPE_CHECKING:
    from ctt.data.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Where the run's data are."""

    dir: str | None = None
    """Folder that holds prepared TFDS data sets. None: the one that the run was trained with."""


@dataclass(frozen=True, kw_only=True)
class ReportArguments(CommonArguments):
    """Arguments of ``ctt report``."""

    run: RunPath
    """Run directory."""
    out: Path | None = None
    """Folder for `figures/` and `report.html`. None: the run directory."""
    batch: bool = True
    """Draw the first training batch, which needs the run's data."""
    data: ReportData = field(default_factory=ReportData)


def run(words: list[str]) -> int:
    """Write the report, and print its files.

    Args:
        words: the words after ``ctt report``.

    Returns:
        The exit status.
    """
    import tyro

    default = ReportArguments(run=tyro.MISSING)
    arguments = parse(ReportArguments, words, default=default, command="report", description=__doc__)
    out = arguments.out or arguments.run

    from ctt.training.directory import RunDirectory

    RunDirectory(arguments.run).read_config()  # First of all: is it a run?
    check_apart("--json", arguments.json, made=(out / "report.html", out / "figures"), run=arguments.run)
    _check_out(out, is_given=arguments.out is not None)

    from ctt.reports.report import write_report

    dataset, notes = _load(arguments)
    files, notes = write_report(arguments.run, out, dataset, notes=notes)
    for note in notes:
        print(note)
    for path in files:
        print(path)
    write_json(arguments.json, {"run": str(arguments.run), "files": [str(path) for path in files], "notes": notes})
    return 0


def _check_out(out: Path, *, is_given: bool) -> None:
    """Refuse a folder that cannot be written, before the data are read."""
    for folder in (out, out / "figures"):
        existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            what = "`--out` must be a folder" if is_given else "The run directory must be one"
            remedy = "Choose another --out." if is_given else "Pass --out DIR."
            raise InputError(f"{what} that can be written, got `{out}`. {remedy}")


def _load(arguments: ReportArguments) -> "tuple[Dataset | None, list[str]]":
    """Return the data of a run, or None and why there are none."""
    from ctt.training.directory import RunDirectory
    from ctt.training.loading import load_with_progress
    from ctt.training.progress import build_reporter

    if not arguments.batch:
        return None, []
    directory = RunDirectory(arguments.run)
    config = directory.read_config()
    known = directory.read_manifest()["data_fingerprint"] if (directory.path / "manifest.json").exists() else None
    if known is None:
        return None, ["There is no picture of a batch: the run has seen no data yet."]
    if arguments.data.dir is not None:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, dir=arguments.data.dir))
    try:
        dataset = load_with_progress(config, build_reporter())
    except InputError as error:
        return None, [f"There is no picture of a batch, since the data are not at hand: {error}"]
    if dataset.fingerprint != known:
        return None, [
            "There is no picture of a batch: these are not the pixels that the run was trained on (the data "
            "fingerprint differs)."
        ]
    return dataset, []
