"""The optimiser and the loop."""

from dataclasses import dataclass

from ctt.config.name import OptimizerName, ScheduleName


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimiser, its schedule and its regularisation."""

    name: OptimizerName = "adamw"
    """Update rule: `adamw`, `lion`, `sgd` (Nesterov), `muon` (the matrices of each time step orthogonalised, all \
else by AdamW), `schedule_free` (AdamW whose steps are averaged). The rate of `lion` is usually a tenth of AdamW's, \
that of `muon` the same."""
    learning_rate: float = 1e-3
    """Peak learning rate, > 0."""
    weight_decay: float = 0.05
    """Decoupled weight decay of matrices, >= 0; biases, norms, embeddings are exempt."""
    b1: float = 0.9
    """Decay of the first moment, in [0, 1); of `schedule_free` the share of the average in the weights at which \
gradients are taken, > 0."""
    b2: float = 0.999
    """Decay of the second moment (of `lion`, whose usual value is 0.99, of its only one), in [0, 1)."""
    momentum: float = 0.9
    """Momentum of `sgd` and of the matrices of `muon` (whose usual value is 0.95), in [0, 1); no other rule has it."""
    schedule: ScheduleName = "cosine"
    """What follows the warm-up: `cosine`, half a cosine; `wsd`, the peak and a line down at the end; `constant`, the \
peak, as `schedule_free` wants it."""
    warmup_fraction: float = 0.1
    """Share of the run spent in linear warm-up to the peak, in [0, 1)."""
    initial_fraction: float = 0.0
    """Learning rate of the first update of a warm-up, as a fraction of the peak, in [0, 1]."""
    decay_fraction: float = 0.2
    """Share of the run over which `wsd` comes down, in (0, 1]; at most what the warm-up leaves."""
    final_fraction: float = 0.01
    """Learning rate at the end of `cosine` or `wsd`, as a fraction of the peak, in [0, 1]."""
    layer_decay: float = 1.0
    """Factor of the learning rate from the read-out back to the last time step, from each step to the one before, \
and from the first to the embedding, in (0, 1]; 1: the same for all."""
    ema_decay: float | None = None
    """Decay of the moving average of the weights, in [0, 1), at most (1 + n) / (10 + n) after n updates; the average \
is measured too. None: no average."""
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
    micro_batches: int = 1
    """Parts of a batch whose gradients are taken one after another and averaged, >= 1; divides `batch_size`. More \
need less memory, and change the gradient by round-off alone."""
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
