"""The optimiser and the loop."""

from dataclasses import dataclass

from ctt.config.name import OptimizerName


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimiser, its schedule and its regularisation."""

    name: OptimizerName = "adamw"
    """Optimiser."""
    learning_rate: float = 1e-3
    """Peak learning rate, > 0."""
    weight_decay: float = 0.05
    """Decoupled weight decay of matrices, >= 0; biases, norms, embeddings are exempt."""
    b1: float = 0.9
    """Decay of the first moment, in [0, 1)."""
    b2: float = 0.999
    """Decay of the second moment, in [0, 1)."""
    warmup_fraction: float = 0.1
    """Share of the run spent in linear warm-up from 0 to the peak, in [0, 1)."""
    final_fraction: float = 0.01
    """Learning rate at the end of the cosine, as a fraction of the peak, in [0, 1]."""
    clip_norm: float | None = 1.0
    """Largest global norm of the gradient, > 0; None: no clipping."""
    label_smoothing: float = 0.0
    """Share of the target spread evenly over all classes, in [0, 1)."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The loop: length, batches, and what is written when."""

    epochs: float = 42.0
    """Length in passes over the training split, > 0."""
    steps: int | None = None
    """Length in optimiser steps, >= 1; given, it takes the place of `epochs`. None: derived from `epochs`."""
    batch_size: int = 64
    """Images a step, >= 1, at most the training split."""
    eval_batch_size: int = 500
    """Images a step of evaluation, >= 1; changes nothing but speed and memory."""
    steps_per_dispatch: int = 16
    """At most so many optimiser steps between two looks of the host at the device, >= 1; changes nothing but speed."""
    log_every: int = 50
    """Optimiser steps between lines of `metrics.jsonl`, >= 1."""
    eval_every: int | None = None
    """Optimiser steps between evaluations on `val`, >= 1; None: about ten a run and one at the end."""
    checkpoint_every: int | None = None
    """Optimiser steps between checkpoints, >= 1; None: with each evaluation."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept, >= 1; the best on `val` is kept besides."""
    certify: bool = True
    """Measure the order of the discretisation before the first step (seconds) and keep it in `manifest.json`."""
    log_splitting_error: bool = False
    """Log the local splitting error of every time step with each evaluation on `val`."""
