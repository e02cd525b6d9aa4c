"""Where the measures of a run go, besides `metrics.jsonl`."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """Where the measures of a run go, besides `metrics.jsonl`."""

    tensorboard: bool = True
    """Write the measures for TensorBoard too, to `tensorboard/` in the run directory."""
    wandb: str | None = None
    """Project of Weights & Biases to send the measures to, by the package `wandb`; None: they are not sent."""
