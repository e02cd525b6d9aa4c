"""The files of a run directory, and how they are read and written."""

import contextlib
import dataclasses
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.config.serialize import config_from_dict, config_to_dict, strict_json

GROUP_FILE = "group.json"
"""The file that makes a folder a group of runs, see `ctt.training.group`."""


class RunDirectory:
    """The files of one run: `config.json`, `manifest.json`, `metrics.jsonl`, `summary.json`, `checkpoints/`."""

    def __init__(self, path: str | Path):
        """Name a run directory; nothing is read or written.

        Args:
            path: the folder.
        """
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The file of metrics, one JSON object a line."""
        return self.path / "metrics.jsonl"

    def check_free(self) -> None:
        """Check that a new run may be put into the folder.

        Raises:
            InputError: the folder holds something already.
        """
        if (self.path / "config.json").exists():
            raise InputError(
                f"`{self.path}` already holds a run. Go on with it by --resume {shlex.quote(str(self.path))}, "
                "or choose another --out."
            )
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"`{self.path}` is not an empty folder. Choose another --out.")

    def create(self, config: Config, manifest: dict[str, Any] | None = None) -> None:
        """Make the folder and write the config, which makes it a run.

        Args:
            config: a resolved config.
            manifest: a manifest that must not be missed, written before the config.

        Raises:
            InputError: the folder holds something already, or cannot be made.
        """
        self.check_free()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if manifest is not None:
                self.write_json("manifest.json", manifest)
            self.write_json("config.json", config_to_dict(without_processes(config)))
        except OSError as error:
            raise InputError(f"`{self.path}` cannot be written ({error.strerror}). Choose another --out.") from error

    def read_config(self) -> Config:
        """Return the resolved config of the run.

        Raises:
            InputError: the folder is no run directory, or its config cannot be read.
        """
        if (self.path / GROUP_FILE).is_file():
            runs = sorted(path.name for path in self.path.glob("seed-*"))
            some = f"one of them, such as `{self.path / runs[0]}`" if runs else "one of them, once it has begun"
            raise InputError(f"`{self.path}` is no run but a group of them, one a seed. Give {some}.")
        if not (self.path / "config.json").is_file():
            raise InputError(
                f"`{self.path}` is not a run directory: it has no config.json. Give the folder that `ctt train` made."
            )
        values = self.read_json("config.json")
        if {"model_type", "architecture", "architectures"} & set(values):
            raise InputError(
                f"`{self.path}` is not a run directory: it holds weights of another library. Give the run that "
                f"`ctt import {shlex.quote(str(self.path))} --out RUN` makes of them."
            )
        return config_from_dict(values)

    def read_json(self, name: str) -> dict[str, Any]:
        """Return one of the JSON files.

        Args:
            name: its name.

        Raises:
            InputError: it is missing or no JSON object.
        """
        try:
            values = json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"`{self.path / name}` cannot be read ({error}). Restore the file.") from error
        if not isinstance(values, dict):
            raise InputError(f"`{self.path / name}` must hold a JSON object. Restore the file.")
        return values

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest.

        Raises:
            InputError: it is missing, or lacks something that every manifest has.
        """
        manifest = self.read_json("manifest.json")
        names, origin = manifest.get("class_names"), manifest.get("origin") or {}
        counters = (origin.get("counters") or {}) if isinstance(origin, dict) else None
        num_classes = self.read_config().data.num_classes
        wanted = {
            "run_id, a text": isinstance(manifest.get("run_id"), str),
            "data_fingerprint, a text or null": isinstance(manifest.get("data_fingerprint", 0), str | None),
            f"class_names, a list of {num_classes} texts, one a class": isinstance(names, list)
            and len(names) == num_classes
            and all(isinstance(name, str) for name in names),
            "origin, where there is one, an object": isinstance(origin, dict),
            "origin.counters, where there are any, whole numbers by name": isinstance(counters, dict)
            and all(type(count) is int and abs(count) < 2**63 for count in counters.values()),
        }
        for description, holds in wanted.items():
            if not holds:
                raise InputError(f"`{self.path / 'manifest.json'}` must have {description}. Restore the file.")
        return manifest

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        """Write one of the JSON files, whole or not at all.

        Args:
            name: its name.
            values: JSON values.
        """
        write_atomically(self.path / name, strict_json(values, indent=2) + "\n")

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append one line to the metrics.

        Args:
            line: `step`, `split` and values.
        """
        with _naming(self.metrics), self.metrics.open("a") as file:
            file.write(strict_json(line) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of the metrics; what is no line of them, such as a last one cut short, is left out."""
        lines = []
        for text in self.metrics.read_text(errors="replace").splitlines() if self.metrics.exists() else []:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int) and isinstance(line.get("split"), str):
                lines.append(line)
        return lines

    def rewind_metrics(self, step: int) -> None:
        """Drop the lines after a step, which are about to be made again.

        Args:
            step: the step that training goes on from.
        """
        kept = [line for line in self.read_metrics() if line["step"] <= step]
        write_atomically(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))


def without_processes(config: Config) -> Config:
    """Return a config that does not say where its processes are: a run goes on without them, or with others.

    Args:
        config: a resolved config.
    """
    devices = dataclasses.replace(config.devices, coordinator=None, num_processes=None, process_id=None)
    return dataclasses.replace(config, devices=devices)


def write_atomically(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Args:
        path: the file.
        text: its new content.
    """
    partial = path.with_name(path.name + ".partial")
    with _naming(path):
        try:
            partial.write_text(text)
            os.replace(partial, path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error say which file it is about, which that of a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
