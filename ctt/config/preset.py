"""Models of published sizes by name: what is named here is the architecture, not a recipe to train it.

Where a command wants a config file, a preset's name will do: ``ctt info cvt_13``.
"""

import dataclasses
from collections.abc import Callable

from ctt.config.schema import Config, DataConfig, ModelConfig, NormalizationConfig, SplittingConfig, StagesConfig

_CIFAR = DataConfig(name="cifar10")


def _imagenet(side: int, mean: tuple[float, ...], std: tuple[float, ...]) -> DataConfig:
    return DataConfig(
        name="imagenet2012", image_shape=(side, side, 3), num_classes=1000, mean=mean, std=std, val_size=10_000
    )


def _vit(width: int, num_heads: int) -> Config:
    """Return a ViT of patch 16, as released: mean and deviation 1/2, eps 1e-6."""
    return Config(
        data=_imagenet(224, (0.5,) * 3, (0.5,) * 3),
        model=ModelConfig(patch_size=16, width=width, num_heads=num_heads, feedforward_width=4 * width, pooling="cls"),
        splitting=SplittingConfig(steps=12),
    )


def _vit_lite(steps: int) -> Config:
    model = ModelConfig(patch_size=4, width=256, num_heads=4, feedforward_width=512, pooling="cls")
    return Config(data=_CIFAR, model=model, splitting=SplittingConfig(steps=steps))


def _cvt(widths: tuple[int, ...], num_heads: tuple[int, ...], steps: tuple[int, ...], side: int = 224) -> Config:
    """Return a CvT as published: batch normalisation in the projections, scores scaled by the whole width."""
    return Config(
        data=_imagenet(side, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        model=ModelConfig(
            name="cvt",
            pooling="cls",
            score_scale="width",
            convolution_normalization="batch",
            stages=StagesConfig(
                widths=widths,
                num_heads=num_heads,
                feedforward_widths=tuple(4 * width for width in widths),
                steps=steps,
                kernels=(7, 3, 3),
                strides=(4, 2, 2),
                paddings=(2, 1, 1),
                projection_kernels=(3, 3, 3),
                key_value_strides=(2, 2, 2),
                key_value_paddings=(1, 1, 1),
            ),
        ),
        normalization=NormalizationConfig(eps=1e-5),
    )


def _cvt_cifar() -> Config:
    """Return a CvT for 32 x 32 pixels and training from scratch."""
    return Config(
        data=_CIFAR,
        model=ModelConfig(
            name="cvt",
            pooling="cls",
            stages=StagesConfig(
                widths=(64, 128, 256),
                num_heads=(1, 2, 4),
                feedforward_widths=(128, 256, 512),
                steps=(2, 4, 5),
                kernels=(3, 3, 3),
                strides=(2, 2, 2),
                paddings=(1, 1, 1),
                projection_kernels=(3, 3, 3),
                key_value_strides=(2, 2, 2),
                key_value_paddings=(1, 1, 1),
            ),
        ),
    )


PRESETS: dict[str, Callable[[], Config]] = {
    "vit_tiny": lambda: _vit(192, 3),
    "vit_small": lambda: _vit(384, 6),
    "vit_base": lambda: _vit(768, 12),
    "vit_lite_6_4": lambda: _vit_lite(6),
    "vit_lite_7_4": lambda: _vit_lite(7),
    "cvt_13": lambda: _cvt((64, 192, 384), (1, 3, 6), (1, 2, 10)),
    "cvt_21": lambda: _cvt((64, 192, 384), (1, 3, 6), (1, 4, 16)),
    "cvt_w24": lambda: _cvt((192, 768, 1024), (3, 12, 16), (2, 2, 20), 384),
    "cvt_cifar": _cvt_cifar,
}
"""Configs by name. `vit_tiny`, `vit_small`, `vit_base`: patch 16 on 224 x 224 pixels (Dosovitskiy et al.,
arXiv:2010.11929; Touvron et al., arXiv:2012.12877); `vit_lite_L_P`: L layers, patch P, on 32 x 32 (Hassani et al.,
arXiv:2104.05704); `cvt_*`: Wu et al., arXiv:2103.15808, table 2; `cvt_cifar`: 3.7 M parameters on 32 x 32."""


def preset(name: str) -> Config:
    """Return a preset.

    Args:
        name: a key of `PRESETS`.

    Example:
        >>> preset("cvt_13").model.stages.steps
        (1, 2, 10)
    """
    return dataclasses.replace(PRESETS[name](), name=name)
