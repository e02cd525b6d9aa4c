"""What all commands share: their common flags, the config behind the words, and `--json`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from ctt.config.arguments import parse_arguments
from ctt.config.error import InputError
from ctt.config.load import read_config_file
from ctt.config.schema import Config
from ctt.config.serialize import strict_json


@dataclass(frozen=True, kw_only=True)
class CommonArguments:
    """Flags of every command."""

    json: Path | None = None
    """Also write what is printed to this file, as JSON; its folder is made if need be."""
    debug: bool = False
    """Show tracebacks."""


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """Which data, and where."""

    name: str | None = None
    """Data set; its images are brought to the run's size. None: the one that the run was trained with."""
    dir: str | None = None
    """Folder that holds prepared TFDS data sets. None: the one that the run was trained with."""


ConfigFile = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG")]
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
FlatConfig = Annotated[Config, tyro.conf.arg(name="")]


def find_config_file(words: Sequence[str]) -> Path | None:
    """Return the config file among the words of a command, or None.

    Args:
        words: the words after the command's name.
    """
    for word in words:
        if word.endswith(".py") and not word.startswith("-"):
            return Path(word)
    return Path(words[0]) if words and not words[0].startswith("-") else None


def find_value(words: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag among the words of a command, or None.

    Args:
        words: the words after the command's name.
        flag: the flag, such as ``--resume``.
    """
    for position, word in enumerate(words):
        if word == flag:
            return words[position + 1] if position + 1 < len(words) else None
        if word.startswith(flag + "="):
            return word.partition("=")[2]
    return None


def default_config(words: Sequence[str], *, command: str) -> Config:
    """Return the config that the other words override.

    Args:
        words: the words after the command's name.
        command: the command's name, for messages.

    Raises:
        InputError: there is no config file among the words, or it cannot be used.
    """
    path = find_config_file(words)
    if path is not None:
        return read_config_file(path)
    if "--help" in words or "-h" in words:
        return Config()
    raise InputError(f"`ctt {command}` needs a config file, such as: ctt {command} configs/digits_vit.py")


def parse(cls: type, words: Sequence[str], *, default: Any, command: str, description: str | None) -> Any:
    """Parse the words of a command.

    Args:
        cls: the dataclass of its arguments.
        words: the words after the command's name.
        default: the values that words override.
        command: the command's name.
        description: what its help says first.

    Raises:
        InputError: see `ctt.config.arguments.parse_arguments`.
    """
    arguments = parse_arguments(cls, list(words), default=default, prog=f"ctt {command}", description=description)
    _check_json(arguments.json)
    return arguments


_RUN_FILES = ("config.json", "manifest.json", "metrics.jsonl", "summary.json")


def _check_json(path: Path | None) -> None:
    """Refuse a file that cannot be written before the work, not after it."""
    if path is None:
        return
    if path.exists() and path.name in _RUN_FILES and (path.parent / "config.json").exists():
        raise InputError(f"`--json` must not overwrite a file of a run, got `{path}`. Choose another path.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"`--json` must be a file that can be written, got `{path}`. Choose another path.")


def print_values(title: str, rows: Mapping[str, str]) -> None:
    """Print names and values: a table on a terminal, plain lines elsewhere.

    Args:
        title: what they are of.
        rows: a text for each name.
    """
    console = Console()
    if not console.is_terminal:
        print("\n".join([title, *(f"  {name}: {value}" for name, value in rows.items())]))
        return
    table = Table(title=title, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)


def write_json(path: Path | None, values: dict[str, Any]) -> None:
    """Write what a command printed, if asked for.

    Args:
        path: the file, or None.
        values: JSON values.
    """
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(strict_json(values, indent=2) + "\n")
        os.replace(partial, path)
