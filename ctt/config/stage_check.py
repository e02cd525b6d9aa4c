"""The fields of the stages of a CvT: one value a stage, each in its range, and meshes that the strides divide."""

import dataclasses
import math

from ctt.config.error import InputError
from ctt.config.requirement import at_least, require
from ctt.config.schema import Config, ModelConfig
from ctt.config.stage import convolved_size, stage_grids

_FOR_ONE_STAGE = ("patch_size", "width", "num_heads", "feedforward_width", "position", "causal", "feedforward_layers")
"""Fields of `model` that say nothing to a CvT."""


def check_stages(config: Config) -> None:
    """Check the stages of a CvT.

    Args:
        config: a config in which no derived field is ``None``.

    Raises:
        InputError: a value cannot be used, or a stride does not divide the mesh that it sees.
    """
    _check_left_alone(config.model)
    stages = config.model.stages
    lengths = {field.name: len(getattr(stages, field.name)) for field in dataclasses.fields(stages)}
    at_least("model.stages.widths", lengths["widths"], 1)
    for name, length in lengths.items():
        number = f"have one value for each of the {lengths['widths']} stages of `model.stages.widths`"
        require(length == lengths["widths"], f"model.stages.{name}", number, getattr(stages, name))
        for value in getattr(stages, name):
            at_least(f"model.stages.{name}", value, 0 if "paddings" in name else 1)
    for width, heads in zip(stages.widths, stages.num_heads, strict=True):
        require(width % heads == 0, "model.stages.num_heads", f"divide the widths {stages.widths}", stages.num_heads)
    for kernel in stages.projection_kernels:
        odd = "be odd, so that a token stands in the middle of its kernel"
        require(kernel % 2 == 1, "model.stages.projection_kernels", odd, stages.projection_kernels)
    _check_meshes(config)


def _check_left_alone(model: ModelConfig) -> None:
    default = ModelConfig()
    for name in _FOR_ONE_STAGE:
        received, wanted = getattr(model, name), getattr(default, name)
        if received != wanted:
            plural = {"width": "widths", "num_heads": "num_heads", "feedforward_width": "feedforward_widths"}.get(name)
            remedy = f"set model.stages.{plural}" if plural else "leave it out"
            raise InputError(
                f"`model.{name}` must be left alone with the model cvt, got {received!r}. "
                f"{remedy[0].upper()}{remedy[1:]}, or pass --model.name vit."
            )


def _check_meshes(config: Config) -> None:
    stages, grids = config.model.stages, stage_grids(config)
    height, width, _ = config.data.image_shape or (0, 0, 0)
    seen = ((height, width), *grids[:-1])
    for index, ((rows, columns), grid) in enumerate(zip(seen, grids, strict=True)):
        stride = stages.strides[index]
        if rows % stride or columns % stride:
            raise InputError(
                f"`data.image_shape` {config.data.image_shape} gives stage {index + 1} a mesh of {rows} x {columns}, "
                f"which its stride {stride} does not divide. Choose sides that are multiples of "
                f"{math.prod(stages.strides)}, or set model.stages.strides."
            )
        if min(grid) < 1:
            raise InputError(
                f"`data.image_shape` {config.data.image_shape} leaves stage {index + 1} no token: its kernel "
                f"{stages.kernels[index]} is larger than its mesh of {rows} x {columns} with padding "
                f"{stages.paddings[index]}. Choose a larger image, or set model.stages.kernels or paddings."
            )
        kernel, padding = stages.projection_kernels[index], stages.key_value_paddings[index]
        stride = stages.key_value_strides[index]
        if min(convolved_size(n, kernel=kernel, stride=stride, padding=padding) for n in grid) < 1:
            raise InputError(
                f"`model.stages.projection_kernels` leaves stage {index + 1} no key: {kernel} is larger than its mesh "
                f"of {grid[0]} x {grid[1]} with padding {padding}. Choose a smaller kernel, a larger "
                "model.stages.key_value_paddings, or a larger image."
            )
