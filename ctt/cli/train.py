"""Train a model.

CONFIG is a Python file with get_config(); every field of it can be overridden:
  ctt train configs/digits_vit.py --splitting.scheme strang --model.width 96 --seed 3
  ctt train --resume runs/digits_vit
  ctt train configs/digits_vit.py --resume auto
  ctt train configs/digits_vit.py --seeds 3
  ctt train --init runs/vit_base --optimizer.learning-rate 1e-4 --training.epochs 3
"""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctt.cli.command import (
    CommonArguments,
    ConfigFile,
    FlatConfig,
    default_config,
    find_config_file,
    find_value,
    parse,
    print_values,
    write_json,
)
from ctt.cli.group import print_group
from ctt.config.error import InputError
from ctt.config.requirement import require
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config

if TYPE_CHECKING:
    from ctt.training.opening import Resume
    from ctt.training.progress import Reporter


@dataclass(frozen=True, kw_only=True)
class TrainArguments(CommonArguments):
    """Arguments of ``ctt train``."""

    config_file: ConfigFile = None
    """Config file; may be left out with --resume and --init."""
    out: Path | None = None
    """Run directory, new or empty. None: the first free one of runs/NAME, runs/NAME-2, ..."""
    resume: Path | None = None
    """Run directory to go on with, from its newest checkpoint. `auto`: go on in OUT if it holds a run (without --out \
in the newest of runs/NAME, runs/NAME-2, ... with this config, --seeds and --init), if need be from an older \
checkpoint; else begin one."""
    init: Path | None = None
    """Run directory whose weights are the initial ones of a new run; its config too, if there is no config file."""
    seeds: int | None = None
    """Repeat the run with so many seeds, >= 1: seed, seed + 1, ..., each in OUT/seed-SEED, with the same held-out \
examples; mean and standard deviation are reported. None: one run, in OUT itself."""
    profile: int | None = None
    """Write a JAX trace of so many steps, >= 1, into the folder profile of the run. None: no trace."""
    config: FlatConfig = field(default_factory=Config)


def run(words: list[str]) -> int:
    """Train, and print the summary.

    Args:
        words: the words after ``ctt train``.

    Returns:
        The exit status.
    """
    source = _find_source(words)
    if source is not None and find_config_file(words) is None:
        default = _read_config(source, is_resume=find_value(words, "--resume") is not None)
    else:
        default = default_config(words, command="train")
    arguments = parse(
        TrainArguments, words, default=TrainArguments(config=default), command="train", description=__doc__
    )
    config = resolve_config(arguments.config)
    _check_flags(arguments)

    # Imported late, so that help and refusals do not wait for jax.
    from ctt.training.devices import join_processes, part_in_time

    joined = join_processes(config.devices)  # Before anything else touches a device.
    with part_in_time():
        return _train(arguments, config, joined)


def _train(arguments: TrainArguments, config: Config, joined: str | None) -> int:
    """Train a run or a group.

    Args:
        arguments: what was asked for.
        config: the resolved config.
        joined: the other processes of the run, as a sentence, if there are any.

    Returns:
        The exit status.
    """
    from ctt.training.devices import is_leader, require_same
    from ctt.training.group import GroupDirectory
    from ctt.training.loop import train
    from ctt.training.place import choose_folder
    from ctt.training.progress import SilentReporter, build_reporter

    reporter = build_reporter() if is_leader() else SilentReporter()
    if joined is not None:
        reporter.say(joined)
        flags = ("out", "resume", "init", "seeds", "profile")
        require_same({f"--{flag}": str(getattr(arguments, flag)) for flag in flags}, config)
    is_group = arguments.seeds is not None
    out, resume = choose_folder(
        config, out=arguments.out, resume=arguments.resume, num_seeds=arguments.seeds, init=arguments.init
    )
    if is_group or GroupDirectory.is_group(out if resume else None):
        return _run_group(arguments, config, out, resume=resume, reporter=reporter)
    summary = train(config, out=out, resume=resume, init=arguments.init, reporter=reporter, profile=arguments.profile)
    if is_leader():
        _print_summary(config, summary, out)
        write_json(arguments.json, {**summary, "run": str(out)})
    return 0


_AUTO = Path("auto")


def _find_source(words: list[str]) -> str | None:
    """Return the folder whose config is the default one, or None: that of a run to go on with or to begin from."""
    resume, init, out = (find_value(words, flag) for flag in ("--resume", "--init", "--out"))
    if resume == str(_AUTO):
        is_begun = out is not None and any((Path(out) / name).is_file() for name in ("config.json", "group.json"))
        return out if is_begun else init
    return resume or init


def _check_flags(arguments: TrainArguments) -> None:
    """Refuse flags that do not go together."""
    resume, is_auto = arguments.resume, arguments.resume == _AUTO
    if resume is not None and not is_auto:
        if arguments.out is not None and arguments.out != resume:
            raise InputError("Give --resume DIR or --out DIR, not both: a resumed run goes on in its own folder.")
        if arguments.init is not None:
            raise InputError("Give --resume DIR or --init DIR, not both: a resumed run has weights of its own.")
        if arguments.seeds is not None:
            raise InputError("Give --resume DIR or --seeds N, not both: a resumed folder has its seeds already.")
    if arguments.profile is not None:
        require(arguments.profile >= 1, "profile", "be >= 1", arguments.profile, remedy="Pass --profile 10, say.")
        if arguments.seeds is not None:
            raise InputError("Give --profile N or --seeds N, not both: the trace is one of a single run.")


def _read_config(source: str, *, is_resume: bool) -> Config:
    """Return the config of a run or, to go on with it, of a group."""
    from ctt.training.directory import RunDirectory
    from ctt.training.group import GroupDirectory

    is_group = is_resume and GroupDirectory.is_group(source)
    return (GroupDirectory(source) if is_group else RunDirectory(source)).read_config()


def _run_group(arguments: TrainArguments, config: Config, out: Path, *, resume: "Resume", reporter: "Reporter") -> int:
    """Train with several seeds, and print what each came to."""
    from ctt.training.devices import is_leader
    from ctt.training.repeat import repeat

    summary = repeat(
        config,
        out=out,
        num_seeds=1 if arguments.seeds is None else arguments.seeds,
        resume=resume,
        init=arguments.init,
        reporter=reporter,
    )
    if not is_leader():
        return 1 if summary["diverged"] else 0
    print_group(f"{config.name} ({config.splitting.scheme} + {config.splitting.substep_text})", summary)
    print(f"Folder of the runs: {out}. Measure them again by: ctt eval {shlex.quote(str(out))}")
    write_json(arguments.json, {**summary, "run": str(out)})
    for run in summary["diverged"]:
        print(f"ctt train: seed {run['seed']} diverged. {run['reason']}", file=sys.stderr)
    return 1 if summary["diverged"] else 0


def _print_summary(config: Config, summary: dict[str, Any], out: Path) -> None:
    rows = {
        key: f"{value:,.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        for key, value in summary.items()
    }
    print_values(f"{config.name} ({config.splitting.scheme} + {config.splitting.substep_text})", rows)
    print(f"Run directory: {out}. Measure it again by: ctt eval {shlex.quote(str(out))}")
