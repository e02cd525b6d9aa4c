"""Measures for Weights & Biases, if the package is installed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.config.serialize import config_to_dict
from ctt.training.telemetry.naming import flatten_measures


def import_wandb() -> Any:
    """Return the package `wandb`.

    Raises:
        InputError: it is not installed.
    """
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            "`logging.wandb` needs the package wandb, which is not installed. Get it by: "
            'pip install "ctt-jax[wandb]", or leave the field out.'
        ) from error
    return wandb


class WandbSink:
    """A run of Weights & Biases, the same one for all sessions of a run.

    Its environment variables hold, such as ``WANDB_MODE=offline``, which writes to `wandb/` in the run directory.
    Steps are a measure like any other and the axis of all, since a resumed run may begin before the last step that was
    sent; what is sent twice is the same.
    """

    def __init__(self, project: str, config: Config, folder: Path, manifest: Mapping[str, Any]):
        """Begin the run, or go on with it.

        Args:
            project: name of the project.
            config: what is run.
            folder: the run directory.
            manifest: gives the run's identity.
        """
        wandb = import_wandb()
        self._run = wandb.init(
            project=project,
            id=manifest["run_id"],
            resume="allow",
            name=config.name,
            dir=str(folder),
            config=config_to_dict(config) | {"environment": manifest.get("environment", {})},
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `ctt.training.telemetry.sink.Sink`."""
        self._run.log({"step": step, **flatten_measures(split, values)})

    def rewind(self, step: int) -> None:
        """See `ctt.training.telemetry.sink.Sink`; the service keeps everything, and steps are an axis."""

    def close(self) -> None:
        """See `ctt.training.telemetry.sink.Sink`."""
        self._run.finish()
