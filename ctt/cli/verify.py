"""Certify a discretisation in float64: its observed order, the exact recoveries, the projections, the meshes.

With CONFIG the order is that of its scheme on a small model of its kind; without, the whole table of orders is
measured (a minute or two):
  ctt verify configs/digits_vit.py --splitting.scheme strang --splitting.substep midpoint
  ctt verify
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ctt.cli.command import CommonArguments, ConfigFile, FlatConfig, find_config_file, parse, write_json
from ctt.config.error import InputError
from ctt.config.load import read_config_file
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config

if TYPE_CHECKING:
    from ctt.certificates.check import Check


@dataclass(frozen=True, kw_only=True)
class VerifyArguments(CommonArguments):
    """Arguments of ``ctt verify``."""

    config_file: ConfigFile = None
    """Config file; without one the whole table of orders is measured."""
    config: FlatConfig = field(default_factory=Config)


def run(words: list[str]) -> int:
    """Run the checks, and print each as it is done.

    Args:
        words: the words after ``ctt verify``.

    Returns:
        The exit status: 1 where something does not hold.
    """
    path = find_config_file(words)
    default = read_config_file(path) if path is not None else Config()
    arguments = parse(
        VerifyArguments, words, default=VerifyArguments(config=default), command="verify", description=__doc__
    )
    if path is None and arguments.config != default:
        raise InputError(
            "`ctt verify` needs a config file where fields are given, such as: ctt verify configs/digits_vit.py "
            "--splitting.scheme strang"
        )
    config = None if path is None else resolve_config(arguments.config)
    console, checks = Console(highlight=False, soft_wrap=True), []
    for check in _checks(config):
        checks.append(check)
        _print(console, check)
    counts = Counter(check.outcome for check in checks)
    console.print(", ".join(f"{counts[outcome]} {text}" for outcome, text in _TALLY.items() if counts[outcome]) + ".")
    write_json(
        arguments.json,
        {
            "config": None if config is None else config.name,
            "outcome": _overall(counts),
            "counts": {outcome: counts[outcome] for outcome in _TALLY},
            "checks": [check.record() for check in checks],
        },
    )
    return 1 if counts["does not hold"] else 0


_TALLY = {"holds": "hold", "does not hold": "do not hold", "not resolved": "not resolved"}
_MARKS = {"holds": ("holds", "green"), "does not hold": ("DOES NOT HOLD", "bold red"), "not resolved": ("?", "yellow")}


def _overall(counts: Counter[str]) -> str:
    return next((o for o in ("does not hold", "not resolved") if counts[o]), "holds")


def _checks(config: Config | None) -> "Iterator[Check]":
    from ctt.certificates import certify_order, check_meshes, check_projections, check_recoveries, check_table

    if config is not None:
        yield certify_order(config)
    else:
        yield from check_table()
    yield from check_recoveries()
    yield from check_projections()
    yield from check_meshes()


def _print(console: Console, check: "Check") -> None:
    mark, style = _MARKS[check.outcome]
    line = Text.assemble((f"{mark:<14}", style), check.name, (f"  {check.summary}", "cyan"))
    console.print(line)
    if check.reason:
        console.print(Text(f"{'':<14}{check.reason}", style="dim"))
