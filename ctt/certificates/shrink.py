"""A small model of a config's kind, on which its order is measured in seconds."""

import dataclasses
import math

from ctt.config.error import InputError
from ctt.config.schema import AugmentationConfig, Config, DataConfig, ModelConfig, StagesConfig
from ctt.config.stage import split_stages, stage_grids
from ctt.config.stage_check import check_stages


def shrink(config: Config) -> Config:
    """Return a config of the same discretisation and a small model, in float64 and without dropout.

    Args:
        config: a resolved config.
    """
    knots, few = [], []
    for stage in split_stages(config):
        knots.append(stage.controls.knots or 1)
        few.append(min(knots[-1], 2))
    splitting = config.splitting
    assert splitting.horizon is not None
    assert splitting.steps is not None
    own = [stage.splitting.steps or 1 for stage in split_stages(config)]
    steps = [n * k // all_ for n, k, all_ in zip(own, few, knots, strict=True)]
    horizon = splitting.horizon * sum(steps) / splitting.steps
    data, model = _shrink_stages(config, tuple(steps)) if config.model.name == "cvt" else _shrink_one(config)
    is_tied = config.controls.knots == 1
    eps = config.normalization.eps if config.normalization.placement == "pre" else 0.0
    return dataclasses.replace(
        config,
        data=data,
        augmentation=AugmentationConfig(),
        model=dataclasses.replace(model, dtype="float64", dropout=0.0),
        normalization=dataclasses.replace(config.normalization, eps=eps),
        splitting=dataclasses.replace(splitting, steps=sum(steps), horizon=horizon),
        controls=dataclasses.replace(config.controls, knots=1 if is_tied else sum(few)),
    )


def _shrink_one(config: Config) -> tuple[DataConfig, ModelConfig]:
    model, (rows, columns, _) = config.model, config.data.image_shape or (0, 0, 0)
    patch, (width, heads) = model.patch_size, _shrink_width(model.width, model.num_heads)
    shape = min(rows // patch, 3) * patch, min(columns // patch, 2) * patch
    model = dataclasses.replace(
        model,
        width=max(width, 4) // 4 * 4 if model.position == "sincos" else width,
        num_heads=heads,
        feedforward_width=min(model.feedforward_width, 2 * width),
    )
    return _shrink_data(config.data, shape), model


def _shrink_stages(config: Config, steps: tuple[int, ...]) -> tuple[DataConfig, ModelConfig]:
    """Keep every kernel, stride and padding: the meshes shrink with the image, to the smallest that leaves them all."""
    stages = config.model.stages
    sizes = [_shrink_width(*pair) for pair in zip(stages.widths, stages.num_heads, strict=True)]
    small = StagesConfig(
        **{
            **{field.name: getattr(stages, field.name) for field in dataclasses.fields(stages)},
            "widths": tuple(width for width, _ in sizes),
            "num_heads": tuple(heads for _, heads in sizes),
            "feedforward_widths": tuple(
                min(hidden, 2 * width) for hidden, (width, _) in zip(stages.feedforward_widths, sizes, strict=True)
            ),
            "steps": steps,
        }
    )
    return _smallest_image(config), dataclasses.replace(config.model, stages=small)


def _smallest_image(config: Config) -> DataConfig:
    rows, columns, _ = config.data.image_shape or (0, 0, 0)
    unit = math.prod(config.model.stages.strides)
    shape = (rows, columns)
    for size in range(unit, min(rows, columns), unit):
        trial = dataclasses.replace(
            config, data=_shrink_data(config.data, (size, size)), augmentation=AugmentationConfig()
        )
        try:
            check_stages(trial)
        except InputError:
            continue
        shape = (size, size)
        if min(stage_grids(trial)[-1]) >= 2:
            break
    return _shrink_data(config.data, shape)


def _shrink_width(width: int, heads: int) -> tuple[int, int]:
    """Return a width of at most 8 and its heads."""
    if width <= 8:
        return width, heads
    few = min(heads, 2)
    return few * max(min(width // heads, 4), 2), few


def _shrink_data(data: DataConfig, shape: tuple[int, int]) -> DataConfig:
    channels = (data.image_shape or (0, 0, 0))[2]
    size = data.val_size or 1
    return dataclasses.replace(data, name="small", image_shape=(*shape, channels), val_size=size)
