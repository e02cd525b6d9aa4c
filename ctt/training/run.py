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
from ctt.training.state import state_from_record, state_record
from ctt.training.step import build_update
from ctt.training.weights import measured_weights


@dataclass(frozen=True)
class Run:
    """A trained run.

    Attributes:
        path: its folder.
        config: its resolved config.
        model: the model with the weights of a checkpoint.
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


def load_run(path: str | Path, *, checkpoint: str | int = "last", weights: str = "last") -> Run:
    """Load a run: its config, and its model with the weights of a checkpoint.

    Args:
        path: a run directory.
        checkpoint: ``"last"``; ``"best"``, the one with the largest accuracy on `val` of those that are kept; or its
            step.
        weights: ``"last"``, those after the last update (with the rule schedule_free their average over the steps), or
            ``"ema"``, their moving average.

    Raises:
        InputError: the folder is no run directory, has no such checkpoint that can be read, or no such weights.
    """
    directory = RunDirectory(path)
    config = directory.read_config()
    if weights not in ("last", "ema"):
        raise InputError(f"`weights` must be last or ema, got {weights!r}. Pass one of them.")
    if weights == "ema" and config.optimizer.ema_decay is None:
        raise InputError(
            f"`{path}` was trained without optimizer.ema_decay, so there is no moving average of its weights. Ask for "
            "the weights last."
        )
    model = build_model(config)
    template = jax.eval_shape(lambda: build_update(config, model, 2)[0])
    store = CheckpointStore(directory.checkpoints, run_id=directory.read_manifest()["run_id"])
    record, _ = store.restore(jax.eval_shape(state_record, template), _find_step(store, checkpoint))
    nnx.update(model, measured_weights(config, state_from_record(record, template))[weights])
    return Run(directory.path, config, model, int(record["step"]))


def _find_step(store: CheckpointStore, checkpoint: str | int) -> int | None:
    """Return the step of a checkpoint; None: the newest."""
    if checkpoint == "last":
        return None
    if isinstance(checkpoint, int) or checkpoint.isdecimal():
        return int(checkpoint)
    if checkpoint != "best":
        raise InputError(f"`checkpoint` must be last, best or the step of one, got {checkpoint!r}. Pass one of these.")
    best = store.best_step()
    if best is None and store.steps():
        raise InputError(
            f"`{store.directory}` holds no checkpoint whose accuracy on val was measured. Ask for the checkpoint last."
        )
    return best
