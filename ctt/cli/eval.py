"""Measure loss and accuracy of a run on one of its splits.

The weights are those of the newest checkpoint:
  ctt eval runs/digits_vit --split val
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from ctt.cli.command import CommonArguments, DataPlace, RunPath, parse, write_json
from ctt.config.name import SplitName


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

    from flax import nnx

    from ctt.config.resolve import require
    from ctt.training.evaluate import build_evaluator
    from ctt.training.loop import load_with_progress
    from ctt.training.progress import build_reporter
    from ctt.training.run import load_run

    if arguments.batch_size is not None:
        require(arguments.batch_size >= 1, "batch_size", "be >= 1", arguments.batch_size, remedy="Pass --batch-size.")
    trained = load_run(arguments.run)
    config, reporter = trained.config, build_reporter()
    if arguments.data.dir is not None:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, dir=arguments.data.dir))
    dataset = load_with_progress(config, reporter)
    is_same = dataset.fingerprint == trained.manifest["data_fingerprint"]
    if not is_same:
        reporter.say("Warning: these are not the pixels that the run was trained on (the data fingerprint differs).")
    evaluate = build_evaluator(trained.model, arguments.batch_size or config.training.eval_batch_size)
    result = evaluate(nnx.state(trained.model, nnx.Param), dataset.split(arguments.split))
    reporter.say(
        f"{arguments.run} at step {trained.step}: {arguments.split} accuracy {result.accuracy:.2%}, "
        f"loss {result.loss:.4f} ({result.num_examples:,} images of {config.data.name})"
    )
    values = {
        "run": str(Path(arguments.run)),
        "step": trained.step,
        "split": arguments.split,
        **dataclasses.asdict(result),
        "data_fingerprint": dataset.fingerprint,
        "is_training_data": is_same,
    }
    write_json(arguments.json, values)
    return 0
