"""A trained run, as a library user loads it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from ctt.config.schema import Config
from ctt.models.build import build_model
from ctt.models.vit import ViT
from ctt.training.checkpoint import CheckpointStore
from ctt.training.directory import RunDirectory
from ctt.training.state import state_record
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
    model: ViT
    step: int

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return RunDirectory(self.path).read_metrics()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Versions, devices, data fingerprint and class names."""
        return RunDirectory(self.path).read_manifest()


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
    params = nnx.state(model, nnx.Param)
    nnx.replace_by_pure_dict(params, record["params"])
    nnx.update(model, params)
    return Run(directory.path, config, model, int(record["step"]))
