"""The optimiser and its schedule, from optax."""

import jax
import optax

from ctt.config.schema import OptimizerConfig
from ctt.typing import PyTree


def build_schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """Return the learning rate as a function of the step: linear warm-up, then half a cosine.

    Args:
        config: the optimiser's config.
        total_steps: length of the run.

    Returns:
        A function of the number of finished steps.

    References:
        Loshchilov and Hutter, arXiv:1608.03983, equation (5).
    """
    peak = config.learning_rate
    warmup = min(round(config.warmup_fraction * total_steps), total_steps - 1)
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0 if warmup else peak,
        peak_value=peak,
        warmup_steps=warmup,
        decay_steps=total_steps,
        end_value=config.final_fraction * peak,
    )


def build_optimizer(config: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    """Return AdamW with clipping of the gradient's global norm.

    Args:
        config: the optimiser's config.
        schedule: the learning rate.

    References:
        Loshchilov and Hutter, arXiv:1711.05101.
    """
    adamw = optax.adamw(schedule, b1=config.b1, b2=config.b2, weight_decay=config.weight_decay, mask=decay_mask)
    if config.clip_norm is None:
        return adamw
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)


def decay_mask(params: PyTree) -> PyTree:
    """Return which parameters decay: the matrices of linear maps, by name.

    The name decides and not the number of axes: axis 0 of a control is depth, so a stacked bias has
    two axes and still is a bias.

    Args:
        params: parameters.
    """

    def is_kernel(path: tuple, leaf: object) -> bool:
        del leaf
        return "kernel" in {str(getattr(key, "key", getattr(key, "name", ""))) for key in path}

    return jax.tree_util.tree_map_with_path(is_kernel, params)
