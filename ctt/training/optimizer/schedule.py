"""The learning rate as a function of the step."""

from collections.abc import Callable

import optax

from ctt.config.schema import OptimizerConfig


def build_schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """Return the learning rate as a function of the number of finished updates: linear warm-up, then a shape by name.

    With `w` updates of warm-up and a run of `n` updates, numbered from 0, the rate as a fraction of the peak is

    * at update 0 `initial_fraction`, and 1 if there is no warm-up;
    * at update `w` for the first time 1;
    * at update `n` `final_fraction` (`cosine`, `wsd`). The last update is `n - 1` and has one step of the descent
      less, so that with a final fraction of 0 no update is lost.

    Args:
        config: the optimiser's config.
        total_steps: length `n` of the run.

    Returns:
        A function of the number of finished updates.
    """
    warmup = min(round(config.warmup_fraction * total_steps), total_steps - 1)
    return SHAPES[config.schedule](config, total_steps, warmup)


def _initial(config: OptimizerConfig, warmup: int) -> float:
    return config.initial_fraction * config.learning_rate if warmup else config.learning_rate


def _cosine(config: OptimizerConfig, total_steps: int, warmup: int) -> optax.Schedule:
    """Half a cosine to the end of the run (Loshchilov and Hutter, arXiv:1608.03983, equation (5))."""
    return optax.warmup_cosine_decay_schedule(
        init_value=_initial(config, warmup),
        peak_value=config.learning_rate,
        warmup_steps=warmup,
        decay_steps=total_steps,
        end_value=config.final_fraction * config.learning_rate,
    )


def _constant(config: OptimizerConfig, total_steps: int, warmup: int) -> optax.Schedule:
    """The peak from the end of the warm-up on."""
    del total_steps
    return optax.warmup_constant_schedule(
        init_value=_initial(config, warmup), peak_value=config.learning_rate, warmup_steps=warmup
    )


def _wsd(config: OptimizerConfig, total_steps: int, warmup: int) -> optax.Schedule:
    """Warm-up, stable, decay: the peak, then a line over the last part of the run (Hu et al., arXiv:2404.06395)."""
    peak = config.learning_rate
    decay = min(max(round(config.decay_fraction * total_steps), 1), total_steps - warmup)
    return optax.join_schedules(
        [_constant(config, total_steps, warmup), optax.linear_schedule(peak, config.final_fraction * peak, decay)],
        [total_steps - decay],
    )


SHAPES: dict[str, Callable[[OptimizerConfig, int, int], optax.Schedule]] = {
    "cosine": _cosine,
    "wsd": _wsd,
    "constant": _constant,
}
"""What follows the warm-up, by name."""
