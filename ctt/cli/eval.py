"""Measure loss and accuracy of a run on one of its splits.

The weights are those of the newest checkpoint:
  ctt eval runs/digits_vit --split val
The same equation with the same controls can be integrated otherwise, on a finer grid or with adaptive steps:
  ctt eval runs/digits_vit --splitting.scheme strang --splitting.substep midpoint --splitting.steps 16
  ctt eval runs/digits_vit --splitting.adaptive --splitting.rtol 1e-4
"""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctt.cli.command import CommonArguments, DataPlace, RunPath, parse, write_json
from ctt.config.compatibility import check_refinable
from ctt.config.dataset import find_facts
from ctt.config.error import InputError
from ctt.config.name import SchemeName, SplitName, SubstepName
from ctt.config.schema import Config


@dataclass(frozen=True, kw_only=True)
class EvalSplitting:
    """How the equation is integrated. None: as in training."""

    scheme: SchemeName | None = None
    """Operator splitting scheme."""
    word: str | None = None
    """Your own scheme, with `scheme` word."""
    substep: SubstepName | None = None
    """One-step method for the flow of each letter."""
    steps: int | None = None
    """Number of time steps to the same horizon, a multiple of the run's knots."""
    allow_reduced_order: bool = False
    """Let a combination run that has no limit as the step goes to 0."""
    adaptive: bool = False
    """Adapt the steps of each image to the splitting error."""
    rtol: float = 1e-3
    """Relative tolerance of the local error of adaptive steps, > 0."""
    atol: float = 1e-6
    """Absolute tolerance of the local error of adaptive steps, >= 0."""
    max_steps: int = 4096
    """At most so many adaptive steps an image, >= 1."""


@dataclass(frozen=True, kw_only=True)
class EvalArguments(CommonArguments):
    """Arguments of ``ctt eval``."""

    run: RunPath
    """Run directory."""
    split: SplitName = "test"
    """Which images: train (without augmentation), val or test."""
    batch_size: int | None = None
    """Images a step, >= 1. None: as in training."""
    data: DataPlace = field(default_factory=DataPlace)
    splitting: EvalSplitting = field(default_factory=EvalSplitting)


def run(words: list[str]) -> int:
    """Evaluate, and print the measures.

    Args:
        words: the words after ``ctt eval``.

    Returns:
        The exit status.
    """
    import tyro

    default = EvalArguments(run=tyro.MISSING)
    arguments = parse(EvalArguments, words, default=default, command="eval", description=__doc__)

    from ctt.config.requirement import require
    from ctt.training.evaluate import build_adaptive_evaluator, build_evaluator, split_model
    from ctt.training.loading import load_with_progress
    from ctt.training.progress import build_reporter
    from ctt.training.run import discretise_anew, load_run

    if arguments.batch_size is not None:
        require(arguments.batch_size >= 1, "batch_size", "be >= 1", arguments.batch_size, remedy="Pass --batch-size.")
    _check_tolerances(arguments.splitting)
    trained = load_run(arguments.run)
    config, reporter = trained.config, build_reporter()
    config, model = discretise_anew(trained, _changes(arguments.splitting))
    if arguments.splitting.adaptive:
        check_refinable(config, "An adaptive step")
    config = _place_data(config, arguments.data)
    dataset = load_with_progress(config, reporter)
    known = trained.manifest["data_fingerprint"]
    is_same = dataset.fingerprint == known
    if known is not None and not is_same:
        reporter.say("Warning: these are not the pixels that the run was trained on (the data fingerprint differs).")
    batch_size = arguments.batch_size or config.training.eval_batch_size
    (_, weights, _), split = split_model(model), dataset.split(arguments.split)
    if arguments.splitting.adaptive:
        options = {name: getattr(arguments.splitting, name) for name in ("rtol", "atol", "max_steps")}
        result = build_adaptive_evaluator(model, batch_size, **options)(weights, split)
    else:
        result = build_evaluator(model, batch_size)(weights, split)
    reporter.say(
        f"{arguments.run} at step {trained.step}: {arguments.split} accuracy {result.accuracy:.2%}, "
        f"loss {result.loss:.4f} ({result.num_examples:,} images of {config.data.name}), {_describe(config, result)}"
    )
    values = {
        "run": str(Path(arguments.run)),
        "step": trained.step,
        "split": arguments.split,
        **dataclasses.asdict(result),
        "scheme": config.splitting.scheme,
        "substep": config.splitting.substep_text,
        "steps": None if arguments.splitting.adaptive else config.splitting.steps,
        "horizon": config.splitting.horizon,
        "adaptive": arguments.splitting.adaptive,
        "data_fingerprint": dataset.fingerprint,
        "is_training_data": is_same,
    }
    write_json(arguments.json, values)
    return 0


def _place_data(config: Config, place: DataPlace) -> Config:
    """Return the config with the data set that the words name, which must have the run's number of classes."""
    from ctt.config.resolve import resolve_config

    changes: dict[str, Any] = {"dir": place.dir} if place.dir is not None else {}
    if place.name is not None and place.name != config.data.name:
        known = find_facts(place.name)
        changes |= {"name": place.name, "val_size": known.val_size if known else config.data.val_size}
    return resolve_config(dataclasses.replace(config, data=dataclasses.replace(config.data, **changes)))


def _check_tolerances(splitting: EvalSplitting) -> None:
    from ctt.config.requirement import require

    require(0 < splitting.rtol < math.inf, "splitting.rtol", "be > 0 and finite", splitting.rtol)
    require(0 <= splitting.atol < math.inf, "splitting.atol", "be >= 0 and finite", splitting.atol)
    require(1 <= splitting.max_steps < 2**31, "splitting.max_steps", "be in [1, 2^31)", splitting.max_steps)
    if splitting.adaptive and splitting.steps is not None:
        raise InputError(
            "Give --splitting.steps or --splitting.adaptive, not both: adaptive steps find their own number."
        )


def _changes(splitting: EvalSplitting) -> dict[str, Any]:
    """Return the fields of the run's `splitting` that the words change."""
    changes: dict[str, Any] = {
        name: getattr(splitting, name)
        for name in ("scheme", "word", "substep", "steps")
        if getattr(splitting, name) is not None
    }
    if splitting.scheme is not None and splitting.scheme != "word" and splitting.word is None:
        changes["word"] = None
    if splitting.substep is not None:
        changes["operator_substeps"] = ()
    if splitting.allow_reduced_order:
        changes["allow_reduced_order"] = True
    return changes


def _describe(config: Config, result: Any) -> str:
    splitting = config.splitting
    substep = splitting.substep_text
    if hasattr(result, "mean_steps"):
        return (
            f"{splitting.scheme} + {substep}, adaptive steps an image: {result.mean_steps:.1f} on average "
            f"({result.min_steps} to {result.max_steps}), {result.mean_rejected:.1f} more rejected"
        )
    return f"{splitting.scheme} + {substep}, {splitting.steps} steps to t = {splitting.horizon:g}"
