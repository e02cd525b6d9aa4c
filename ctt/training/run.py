"""A trained run, as a library user loads it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from ctt.config.compatibility import check_refinable
from ctt.config.error import InputError
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config
from ctt.models.build import build_model
from ctt.models.classifier import Classifier
from ctt.training.checkpoint import CheckpointStore
from ctt.training.directory import RunDirectory
from ctt.training.evaluate import split_model
from ctt.training.state import state_record, weights_from_record
from ctt.training.step import build_update


@dataclass(frozen=True)
class Run:
    """A trained run.

    Attributes:
        path: its folder.
        config: its resolved config.
        model: the model with the weights of the newest checkpoint.
        step: the step of that checkpoint.
    """

    path: Path
    config: Config
    model: Classifier
    step: int

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return RunDirectory(self.path).read_metrics()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Versions, devices, data fingerprint and class names."""
        return RunDirectory(self.path).read_manifest()


def discretise_anew(run: Run, changes: Mapping[str, Any]) -> tuple[Config, Classifier]:
    """Return a run's config and model with its equation and controls kept and another discretisation in time.

    Args:
        run: a trained run.
        changes: fields of `config.splitting`, such as ``{"scheme": "strang", "steps": 16}``; the horizon stays.

    Raises:
        InputError: the fields do not go together, the run's controls do not fit the scheme, or the number of
            steps changes and the run has no limit as the step goes to 0.
    """
    if not changes:
        return run.config, run.model
    splitting = dataclasses.replace(run.config.splitting, **changes)
    knots = run.config.controls.knots or 1
    if "literal" in (splitting.scheme, run.config.splitting.scheme) and splitting != run.config.splitting:
        raise InputError(
            "A run of the scheme literal is a layer at step 1 and no discretisation, and no other run can become one. "
            "Give no scheme, substep or steps, or train a new run."
        )
    assert splitting.steps is not None  # A saved config is resolved, and changes are numbers.
    if splitting.steps < 1 or splitting.steps % knots:
        raise InputError(
            f"`splitting.steps` must be a multiple of the run's {knots} knots, got {splitting.steps}. Pass such as "
            f"--splitting.steps {4 * knots}."
        )
    config = dataclasses.replace(run.config, splitting=splitting)
    if splitting.steps != run.config.splitting.steps:
        check_refinable(config, "Another number of steps")
    config = resolve_config(config)
    _, weights, _ = split_model(run.model)
    graphdef, wanted, rest = split_model(build_model(config))
    shapes = [jax.tree.map(lambda x: x.shape, nnx.to_pure_dict(state)) for state in (weights, wanted)]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"`splitting.scheme` {splitting.scheme} needs other controls than the run has, which was trained with "
            f"{run.config.splitting.scheme}. Choose a scheme such as lie, strang or yoshida4, or train a new run."
        )
    return config, nnx.merge(graphdef, weights, rest)


def load_run(path: str | Path) -> Run:
    """Load a run: its config, and its model with the weights of the newest checkpoint.

    Args:
        path: a run directory.

    Raises:
        InputError: the folder is no run directory, or has no checkpoint that can be read.
    """
    directory = RunDirectory(path)
    config = directory.read_config()
    model = build_model(config)
    template = jax.eval_shape(lambda: state_record(build_update(config, model, 2)[0]))
    store = CheckpointStore(directory.checkpoints, run_id=directory.read_manifest()["run_id"])
    record, _ = store.restore(template)
    for name, kind in (("params", nnx.Param), ("statistics", nnx.BatchStat)):
        nnx.update(model, weights_from_record(record.get(name, {}), nnx.state(model, kind)))
    return Run(directory.path, config, model, int(record["step"]))
