"""The order of a CvT, whose stages are integrated one after the other."""

import pytest

from ctt.certificates import certify_order
from ctt.certificates.shrink import shrink
from ctt.config import (
    Config,
    ControlsConfig,
    DataConfig,
    ModelConfig,
    NormalizationConfig,
    SplittingConfig,
    StagesConfig,
    load_config,
    resolve_config,
)
from ctt.config.stage import split_stages, stage_grids


@pytest.mark.parametrize(
    ("splitting", "model", "normalization", "promised"),
    [
        ({"scheme": "lie"}, {}, {}, 1),
        ({"scheme": "strang", "substep": "midpoint"}, {"convolution_normalization": "batch", "pooling": "cls"}, {}, 2),
        (
            {"scheme": "strang", "substep": "midpoint"},
            {"convolution_normalization": "none"},
            {"placement": "tangent", "affine": "scalar"},
            2,
        ),
        ({"scheme": "parallel", "substep": "midpoint"}, {}, {"placement": "post", "affine": "none"}, 1),
    ],
)
def test_a_cvt_obeys_the_order_of_its_scheme(splitting, model, normalization, promised):
    config = Config(
        data=DataConfig(name="cifar10"),
        model=ModelConfig(name="cvt", **model),
        normalization=NormalizationConfig(**normalization),
        splitting=SplittingConfig(**splitting),
    )
    check = certify_order(config)
    assert check.outcome == "holds", check
    assert check.values["promised"] == promised
    assert abs(check.values["slopes"][-1] - promised) < 0.15
    assert check.values["loop_difference"] < 1e-12


def test_the_small_model_keeps_kernels_strides_and_time():
    config = load_config("configs/cifar10_cvt.py")
    small = resolve_config(shrink(config))
    kept = ("kernels", "strides", "paddings", "projection_kernels", "key_value_strides", "key_value_paddings")
    for name in kept:
        assert getattr(small.model.stages, name) == getattr(config.model.stages, name)
    assert small.model.stages.steps == (2, 2, 2)
    assert small.splitting.horizon == 6.0
    assert max(small.model.stages.widths) <= 8
    assert stage_grids(small)[-1] == (2, 2)


def test_the_small_model_of_tied_weights_has_one_knot_a_stage():
    model = ModelConfig(name="cvt", stages=StagesConfig(steps=(1, 2, 3)))
    config = Config(data=DataConfig(name="cifar10"), model=model, controls=ControlsConfig(knots=1))
    small = resolve_config(shrink(resolve_config(config)))
    assert [(c.splitting.steps, c.controls.knots) for c in split_stages(small)] == [(1, 1), (2, 1), (3, 1)]
