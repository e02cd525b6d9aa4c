"""When a run logs, evaluates and saves, and when it ends."""

from dataclasses import dataclass

from ctt.config.error import InputError
from ctt.config.schema import TrainingConfig
from ctt.data.sampler import steps_per_epoch


def count_steps(config: TrainingConfig, num_train: int) -> int:
    """Return the length of a run in optimiser steps.

    Args:
        config: the loop's config.
        num_train: size of the training split.

    Raises:
        InputError: the batch is larger than the training split, or the run has no step.
    """
    per_epoch = steps_per_epoch(num_train, config.batch_size)
    total = config.steps or round(config.epochs * per_epoch)
    if not 1 <= total < 2**31:
        raise InputError(
            f"`training.epochs` must give at least one step and fewer than 2^31, got {config.epochs}. Pass another "
            "number, or --training.steps."
        )
    return total


@dataclass(frozen=True)
class Milestones:
    """The steps at which the host has something to do.

    Attributes:
        total: length of the run in steps.
        log_every: steps between lines of the metrics.
        eval_every: steps between evaluations on `val`.
        save_every: steps between checkpoints.
    """

    total: int
    log_every: int
    eval_every: int
    save_every: int

    @classmethod
    def of(cls, config: TrainingConfig, total: int) -> "Milestones":
        """Return the milestones of a run.

        Args:
            config: the loop's config.
            total: length of the run in steps.
        """
        eval_every = config.eval_every or max(total // 10, 1)
        return cls(total, config.log_every, eval_every, config.checkpoint_every or eval_every)

    def is_log(self, step: int) -> bool:
        """Return whether a line of the metrics is due after a step."""
        return step % self.log_every == 0 or step == self.total

    def is_eval(self, step: int) -> bool:
        """Return whether an evaluation is due after a step."""
        return step % self.eval_every == 0 or step == self.total

    def is_save(self, step: int) -> bool:
        """Return whether a checkpoint is due after a step."""
        return step % self.save_every == 0 or step == self.total

    def is_any(self, step: int) -> bool:
        """Return whether anything is due after a step."""
        return self.is_log(step) or self.is_eval(step) or self.is_save(step)

    @property
    def longest(self) -> int:
        """Return the largest number of steps between two milestones."""
        return min(self.total, self.log_every, self.eval_every, self.save_every)

    def next_after(self, step: int) -> int:
        """Return the first step after this one at which anything is due.

        Example:
            >>> milestones = Milestones(total=10, log_every=4, eval_every=6, save_every=6)
            >>> [milestones.next_after(step) for step in (0, 4, 6, 8)]
            [4, 6, 8, 10]
        """
        periods = (self.log_every, self.eval_every, self.save_every)
        return min(self.total, *((step // period + 1) * period for period in periods))
