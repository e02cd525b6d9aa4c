"""One stage of a model as a config of its own: what is built stage by stage reads no tuple."""

import dataclasses
import math

from ctt.config.error import InputError
from ctt.config.schema import Config, StagesConfig


def convolved_size(size: int, *, kernel: int, stride: int, padding: int) -> int:
    """Return the number of places that a convolution visits along an axis.

    Args:
        size: places along the axis.
        kernel: side of the kernel.
        stride: stride of the kernel.
        padding: zeros on either side.

    Example:
        >>> convolved_size(224, kernel=7, stride=4, padding=2)
        56
    """
    return (size + 2 * padding - kernel) // stride + 1


def num_stages(config: Config) -> int:
    """Return the number of stages: 1 but for a CvT.

    Args:
        config: a config.
    """
    return len(config.model.stages.widths) if config.model.name == "cvt" else 1


def token_grid(config: Config) -> tuple[int, int]:
    """Return the rows and columns of the patches of a config of one stage, a 2-D mesh of tokens.

    Args:
        config: a resolved config of a single stage, or one of `split_stages`.
    """
    height, width, _ = config.data.image_shape or (0, 0, 0)
    return height // config.model.patch_size, width // config.model.patch_size


def stage_grids(config: Config) -> tuple[tuple[int, int], ...]:
    """Return the rows and columns of the mesh of tokens of each stage.

    Args:
        config: a config whose image shape is known and whose stages were checked.

    Example:
        >>> from ctt.config.schema import DataConfig, ModelConfig
        >>> data = DataConfig(image_shape=(32, 32, 3))
        >>> stage_grids(Config(data=data, model=ModelConfig(name="cvt")))
        ((16, 16), (8, 8), (4, 4))
    """
    if config.model.name != "cvt":
        return (token_grid(config),)
    height, width, _ = config.data.image_shape or (0, 0, 0)
    stages, grid, grids = config.model.stages, (height, width), []
    for kernel, stride, padding in zip(stages.kernels, stages.strides, stages.paddings, strict=True):
        rows, columns = (convolved_size(n, kernel=kernel, stride=stride, padding=padding) for n in grid)
        grid = (rows, columns)
        grids.append(grid)
    return tuple(grids)


def split_stages(config: Config) -> tuple[Config, ...]:
    """Return the config of each stage: its width, its share of the time, and its mesh of tokens as its image.

    The horizon, the steps and the knots are shared out in the proportion of ``model.stages.steps``; a single knot is
    one in every stage. A stage's patches are its tokens, and the class token belongs to the last stage.

    Args:
        config: a config in which no derived field is ``None``; one of a single stage is returned as it is.

    Raises:
        InputError: the steps or the knots cannot be shared out.
    """
    if config.model.name != "cvt":
        return (config,)
    stages, splitting, total = config.model.stages, config.splitting, sum(config.model.stages.steps)
    assert splitting.steps is not None
    assert splitting.horizon is not None
    configs = []
    for index, (proportion, grid) in enumerate(zip(stages.steps, stage_grids(config), strict=True)):
        steps = _share(splitting.steps, proportion, total, field="splitting.steps", stages=stages)
        knots = _share(config.controls.knots or 1, proportion, total, field="controls.knots", stages=stages)
        is_last = index == len(stages.widths) - 1
        model = dataclasses.replace(
            config.model,
            stages=take_stage(stages, index),
            width=stages.widths[index],
            num_heads=stages.num_heads[index],
            feedforward_width=stages.feedforward_widths[index],
            patch_size=1,
            pooling=config.model.pooling if is_last else "mean",
        )
        channels = stages.widths[index - 1] if index else (config.data.image_shape or (0, 0, 0))[2]
        configs.append(
            dataclasses.replace(
                config,
                data=dataclasses.replace(config.data, image_shape=(*grid, channels)),
                model=model,
                splitting=dataclasses.replace(splitting, steps=steps, horizon=splitting.horizon * proportion / total),
                controls=dataclasses.replace(config.controls, knots=knots),
            )
        )
    return tuple(configs)


def take_stage(stages: StagesConfig, index: int) -> StagesConfig:
    """Return the values of one stage, as stages of length 1.

    Args:
        stages: the values of all stages.
        index: which stage.
    """
    names = [field.name for field in dataclasses.fields(stages)]
    return StagesConfig(**{name: (getattr(stages, name)[index],) for name in names})


def _share(value: int, proportion: int, total: int, *, field: str, stages: StagesConfig) -> int:
    if field == "controls.knots" and value == 1:
        return 1
    share, rest = divmod(value * proportion, total)
    if rest or share < 1:
        unit = total // math.gcd(*stages.steps)
        raise InputError(
            f"`{field}` must be a multiple of {unit}, so that the stages can share it as {stages.steps}, got {value}. "
            f"Pass such as --{field} {2 * unit}, or set model.stages.steps."
        )
    return share
