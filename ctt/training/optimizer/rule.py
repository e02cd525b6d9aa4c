"""The update rules by name, each with clipping, decoupled weight decay by name, and decay of the rate by layer."""

from collections.abc import Callable

import jax
import optax
from optax import contrib

from ctt.config.schema import OptimizerConfig
from ctt.training.optimizer.depth import Depth, Path, matrix_axes, name_parameter, scale_by_layer
from ctt.typing import PyTree

_MUON_RMS = 0.2
"""Root mean square of an entry of Muon's update, that of AdamW's: one learning rate and one decay serve both."""


def build_optimizer(
    config: OptimizerConfig, schedule: optax.Schedule, depth: Depth | None = None
) -> optax.GradientTransformation:
    """Return an optimiser: clipping of the gradient's global norm, an update rule, decay of the rate by layer.

    Args:
        config: the optimiser's config.
        schedule: the learning rate.
        depth: the places of the parameters; needed by the rule muon and where ``config.layer_decay`` is not 1.
    """
    clip = [] if config.clip_norm is None else [optax.clip_by_global_norm(config.clip_norm)]
    by_layer = [] if config.layer_decay == 1 else [scale_by_layer(_require(depth), config.layer_decay)]

    def wrap(rule: optax.GradientTransformation) -> optax.GradientTransformation:
        return optax.chain(*clip, rule, *by_layer) if clip or by_layer else rule

    return RULES[config.name](config, schedule, depth, wrap)


Wrap = Callable[[optax.GradientTransformation], optax.GradientTransformation]
"""Puts clipping before a rule and decay by layer behind it."""


def _require(depth: Depth | None) -> Depth:
    if depth is None:
        raise ValueError("An optimiser that knows the depth needs `locate_parameters(model)`.")
    return depth


def _decay_and_step(config: OptimizerConfig, schedule: optax.Schedule) -> list[optax.GradientTransformation]:
    """Return decoupled weight decay, and the step against the sum (Loshchilov and Hutter, arXiv:1711.05101)."""
    return [
        optax.add_decayed_weights(config.weight_decay, decay_mask),
        optax.scale_by_learning_rate(schedule),
    ]


def _adamw(
    config: OptimizerConfig, schedule: optax.Schedule, depth: Depth | None, wrap: Wrap
) -> optax.GradientTransformation:
    """Loshchilov and Hutter, arXiv:1711.05101."""
    del depth
    return wrap(optax.adamw(schedule, b1=config.b1, b2=config.b2, weight_decay=config.weight_decay, mask=decay_mask))


def _lion(
    config: OptimizerConfig, schedule: optax.Schedule, depth: Depth | None, wrap: Wrap
) -> optax.GradientTransformation:
    """Chen et al., arXiv:2302.06675."""
    del depth
    return wrap(optax.lion(schedule, b1=config.b1, b2=config.b2, weight_decay=config.weight_decay, mask=decay_mask))


def _sgd(
    config: OptimizerConfig, schedule: optax.Schedule, depth: Depth | None, wrap: Wrap
) -> optax.GradientTransformation:
    """Nesterov's momentum (Sutskever et al., 2013), with decoupled decay (SGDW)."""
    del depth
    return wrap(optax.chain(optax.trace(config.momentum, nesterov=True), *_decay_and_step(config, schedule)))


def _muon(
    config: OptimizerConfig, schedule: optax.Schedule, depth: Depth | None, wrap: Wrap
) -> optax.GradientTransformation:
    """Jordan et al. (2024), scaled as in Liu et al., arXiv:2502.16982, equation (4); all but the controls' maps: AdamW.

    The decay stands behind both sides, since that of the library's AdamW side knows no mask.
    """
    directions = contrib.muon(
        learning_rate=1.0,
        beta=config.momentum,
        adam_b1=config.b1,
        adam_b2=config.b2,
        muon_weight_dimension_numbers=matrix_axes(_require(depth)),
        consistent_rms=_MUON_RMS,
    )
    return wrap(optax.chain(directions, optax.scale(-1.0), *_decay_and_step(config, schedule)))


def _schedule_free(
    config: OptimizerConfig, schedule: optax.Schedule, depth: Depth | None, wrap: Wrap
) -> optax.GradientTransformation:
    """Defazio et al., arXiv:2405.15682: AdamW without momentum whose steps are averaged; b1 is the interpolation.

    Clipping and decay by layer act within, on the sequence that is averaged.
    """
    del depth
    second_moment = optax.scale_by_rms(config.b2, eps=1e-8, eps_in_sqrt=False, bias_correction=True)
    base = wrap(optax.chain(second_moment, *_decay_and_step(config, schedule)))
    # The library counts from 1 here and from 0 within: a step's weight is to be that of the rate it was made with.
    return contrib.schedule_free(base, lambda count: schedule(count - 1), b1=config.b1)


RULES: dict[str, Callable[[OptimizerConfig, optax.Schedule, Depth | None, Wrap], optax.GradientTransformation]] = {
    "adamw": _adamw,
    "lion": _lion,
    "sgd": _sgd,
    "muon": _muon,
    "schedule_free": _schedule_free,
}
"""Update rules by name."""


def decay_mask(params: PyTree) -> PyTree:
    """Return which parameters decay: the matrices of linear maps, by name.

    The name decides and not the number of axes: axis 0 of a control is depth, so a stacked bias has
    two axes and still is a bias.

    Args:
        params: parameters.
    """

    def is_kernel(path: Path, leaf: object) -> bool:
        del leaf
        return "kernel" in name_parameter(path).split(".")

    return jax.tree_util.tree_map_with_path(is_kernel, params)
