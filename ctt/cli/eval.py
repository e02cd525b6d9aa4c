"""Measure a run on one of its splits: loss, accuracy, calibration, confusions.

The weights are those of the newest checkpoint:
  ctt eval runs/digits_vit --split val --figure digits.png
The same equation with the same controls can be integrated otherwise, on a finer grid or with adaptive steps:
  ctt eval runs/digits_vit --splitting.scheme strang --splitting.substep midpoint --splitting.steps 16
  ctt eval runs/digits_vit --splitting.adaptive --splitting.rtol 1e-4
Of the folder of ctt train --seeds each run is measured, with mean and standard deviation.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctt.cli.command import CommonArguments, DataPlace, RunPath, parse, write_json
from ctt.cli.figure import check_figure
from ctt.config.compatibility import check_refinable
from ctt.config.dataset import find_facts
from ctt.config.error import InputError
from ctt.config.name import SchemeName, SplitName, SubstepName, WeightsName
from ctt.config.requirement import require
from ctt.config.schema import Config

if TYPE_CHECKING:
    from ctt.data.dataset import Dataset
    from ctt.training.evaluate import Evaluation
    from ctt.training.evaluation.measure import Measures
    from ctt.training.progress import Reporter
    from ctt.training.run import Run


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
    checkpoint: str = "last"
    """Which checkpoint: `last`, `best` (the largest accuracy on val of those that are kept), or its step."""
    weights: WeightsName = "last"
    """Which of its weights: `last`, or `ema`, their moving average."""
    split: SplitName = "test"
    """Which images: train (without augmentation), val or test."""
    batch_size: int | None = None
    """Images a step, >= 1. None: as in training."""
    top_k: int | None = None
    """The k of the top-k accuracy, in [1, number of classes]. None: 5, or one fewer than the classes if less."""
    bins: int = 15
    """Bins of equal width of the confidence, for the calibration error and the reliability table, >= 1."""
    figure: Path | None = None
    """Draw the confusion matrix and the reliability diagram into this file (.png, .svg or .pdf)."""
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
    _check_numbers(arguments)
    check_figure(arguments.figure, json=arguments.json, run=arguments.run)

    from ctt.training.group import GroupDirectory

    is_group = GroupDirectory.is_group(arguments.run)
    write_json(arguments.json, _evaluate_group(arguments) if is_group else _evaluate_run(arguments))
    return 0


def _evaluate_run(arguments: EvalArguments) -> dict[str, Any]:
    """Measure one run, print, draw, and return the JSON values."""
    from ctt.cli.measures import describe_result, print_measures
    from ctt.training.progress import build_reporter
    from ctt.training.run import load_run

    reporter = build_reporter()
    trained = load_run(arguments.run, checkpoint=arguments.checkpoint, weights=arguments.weights)
    config, result, measures, dataset = _measure(trained, arguments, reporter)
    names = trained.manifest["class_names"]
    reporter.say(
        f"{arguments.run} at step {trained.step}: {arguments.split} accuracy {result.accuracy:.2%}, "
        f"loss {result.loss:.4f} ({result.num_examples:,} images of {config.data.name}), "
        f"{describe_result(config, result)}"
    )
    print_measures(measures, names)
    if arguments.figure is not None:
        from ctt.reports.evaluation_figure import draw_evaluation

        title = (
            f"{trained.path.resolve().name}, {arguments.split}: accuracy {result.accuracy:.2%}, loss {result.loss:.4f}"
        )
        draw_evaluation(arguments.figure, measures, names, title=title)
        reporter.say(f"Confusion matrix and reliability diagram: {arguments.figure}")
    return _record(arguments, trained, config, result, measures, dataset)


def _evaluate_group(arguments: EvalArguments) -> dict[str, Any]:
    """Measure the run of each seed, print the table, and return the JSON values."""
    from ctt.cli.group import print_group
    from ctt.training.evaluation.spread import measure_spread
    from ctt.training.group import GroupDirectory
    from ctt.training.progress import build_reporter
    from ctt.training.run import load_run

    group, reporter = GroupDirectory(arguments.run), build_reporter()
    seeds = group.read_group()["seeds"]
    if arguments.figure is not None:
        raise InputError(
            f"`--figure` must be of one run, but `{arguments.run}` has one a seed. Give one of them, such as "
            f"`{group.seed_folder(seeds[0])}`."
        )
    missing = [seed for seed in seeds if not (group.seed_folder(seed) / "summary.json").is_file()]
    if missing:
        reporter.say(
            f"Warning: left out, since they are not finished: {', '.join(f'seed-{seed}' for seed in missing)}."
        )
    runs: list[dict[str, Any]] = []
    dataset = None
    for seed in seeds:
        if seed not in missing:
            trained = load_run(group.seed_folder(seed), checkpoint=arguments.checkpoint, weights=arguments.weights)
            config, result, measures, dataset = _measure(trained, arguments, reporter, dataset)
            runs.append({"seed": seed, **_record(arguments, trained, config, result, measures, dataset)})
    if not runs:
        raise InputError(
            f"`{arguments.run}` must have a finished run to be evaluated. Go on with `ctt train --resume`, or give the "
            "folder of one seed."
        )
    names = ["loss", "accuracy", "top_k_accuracy", "calibration_error", "brier_score"]
    names += [name for name in ("mean_steps", "mean_rejected") if name in runs[0]]
    mean, std = measure_spread(runs, names)
    values = {"run": str(Path(arguments.run)), "split": arguments.split, "seeds": seeds}
    values |= {"runs": runs, "mean": mean, "std": std}
    print_group(f"{arguments.run}, {arguments.split}", values)
    return values


def _measure(
    trained: "Run", arguments: EvalArguments, reporter: "Reporter", dataset: "Dataset | None" = None
) -> "tuple[Config, Evaluation, Measures, Dataset]":
    """Return the config that a run is evaluated by, its measures, and the data, loaded if they are not yet."""
    from ctt.training.evaluate import split_model
    from ctt.training.evaluation.classify import build_adaptive_classifier, build_classifier
    from ctt.training.evaluation.measure import choose_top_k, measure_examples
    from ctt.training.loading import load_with_progress
    from ctt.training.run import discretise_anew

    num_classes = trained.config.data.num_classes or 0
    choose_top_k(arguments.top_k, num_classes)  # Refuses before the work.
    config, model = discretise_anew(trained, _changes(arguments.splitting))
    if arguments.splitting.adaptive:
        check_refinable(config, "An adaptive step")
    config = _place_data(config, arguments.data)
    dataset = dataset or load_with_progress(config, reporter)
    if trained.manifest["data_fingerprint"] not in (None, dataset.fingerprint):
        reporter.say("Warning: these are not the pixels that the run was trained on (the data fingerprint differs).")
    batch_size = arguments.batch_size or config.training.eval_batch_size
    (_, weights, _), split = split_model(model), dataset.split(arguments.split)
    if arguments.splitting.adaptive:
        options = {name: getattr(arguments.splitting, name) for name in ("rtol", "atol", "max_steps")}
        result, examples = build_adaptive_classifier(model, batch_size, **options)(weights, split)
    else:
        result, examples = build_classifier(model, batch_size)(weights, split)
    measures = measure_examples(examples, num_classes, top_k=arguments.top_k, num_bins=arguments.bins)
    if measures.num_undefined:
        reporter.say(
            f"Warning: the logits of {measures.num_undefined:,} of {result.num_examples:,} images are not numbers; "
            "they count as wrong, and loss, calibration error and Brier score are undefined."
        )
    return config, result, measures, dataset


def _record(
    arguments: EvalArguments,
    trained: "Run",
    config: Config,
    result: "Evaluation",
    measures: "Measures",
    dataset: "Dataset",
) -> dict[str, Any]:
    return {
        "run": str(trained.path),
        "step": trained.step,
        "checkpoint": arguments.checkpoint,
        "weights": arguments.weights,
        "split": arguments.split,
        **dataclasses.asdict(result),
        "scheme": config.splitting.scheme,
        "substep": config.splitting.substep_text,
        "steps": None if arguments.splitting.adaptive else config.splitting.steps,
        "horizon": config.splitting.horizon,
        "adaptive": arguments.splitting.adaptive,
        "data_fingerprint": dataset.fingerprint,
        "is_training_data": dataset.fingerprint == trained.manifest["data_fingerprint"],
        **measures.record(trained.manifest["class_names"]),
    }


def _place_data(config: Config, place: DataPlace) -> Config:
    """Return the config with the data set that the words name, which must have the run's number of classes."""
    from ctt.config.resolve import resolve_config

    changes: dict[str, Any] = {"dir": place.dir} if place.dir is not None else {}
    if place.name is not None and place.name != config.data.name:
        known = find_facts(place.name)
        changes |= {"name": place.name, "val_size": known.val_size if known else config.data.val_size}
    return resolve_config(dataclasses.replace(config, data=dataclasses.replace(config.data, **changes)))


def _check_numbers(arguments: EvalArguments) -> None:
    """Refuse the numbers that no run can be evaluated with."""
    splitting = arguments.splitting
    if arguments.batch_size is not None:
        require(arguments.batch_size >= 1, "batch_size", "be >= 1", arguments.batch_size, remedy="Pass --batch-size.")
    require(1 <= arguments.bins < 2**20, "bins", "be in [1, 2^20)", arguments.bins, remedy="Pass --bins 15, say.")
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
