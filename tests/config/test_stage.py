import dataclasses

import pytest

from ctt.config import (
    Config,
    ControlsConfig,
    DataConfig,
    GradientConfig,
    InputError,
    ModelConfig,
    NormalizationConfig,
    SplittingConfig,
    StagesConfig,
    resolve_config,
)
from ctt.config.compatibility import check_trainable
from ctt.config.stage import split_stages, stage_grids


def config(*, stages=None, data=None, model=None, **sections):
    return Config(
        data=DataConfig(name="cifar10", **(data or {})),
        model=ModelConfig(name="cvt", stages=StagesConfig(**(stages or {})), **(model or {})),
        **sections,
    )


def test_the_stages_share_the_time_in_proportion():
    resolved = resolve_config(config(splitting=SplittingConfig(steps=14, horizon=7.0)))
    parts = [(c.splitting.steps, c.splitting.horizon, c.controls.knots) for c in split_stages(resolved)]
    assert parts == [(2, 1.0, 2), (4, 2.0, 4), (8, 4.0, 8)]


def test_steps_are_those_of_the_stages_if_not_given():
    resolved = resolve_config(config())
    assert (resolved.splitting.steps, resolved.splitting.horizon, resolved.controls.knots) == (7, 7.0, 7)
    assert resolve_config(resolved) == resolved


def test_one_knot_is_one_in_every_stage():
    resolved = resolve_config(config(controls=ControlsConfig(knots=1)))
    assert [c.controls.knots for c in split_stages(resolved)] == [1, 1, 1]


def test_knots_and_steps_are_independent():
    resolved = resolve_config(config(splitting=SplittingConfig(steps=28), controls=ControlsConfig(knots=7)))
    assert [c.controls.knots for c in split_stages(resolved)] == [1, 2, 4]
    assert [c.splitting.steps for c in split_stages(resolved)] == [4, 8, 16]


def test_a_stage_sees_its_own_sizes_and_mesh():
    resolved = resolve_config(config(model={"pooling": "cls"}))
    first, _, last = split_stages(resolved)
    assert (first.model.width, first.model.num_heads, first.model.feedforward_width) == (64, 1, 128)
    assert (first.data.image_shape, last.data.image_shape) == ((16, 16, 3), (4, 4, 128))
    assert (first.model.pooling, last.model.pooling) == ("mean", "cls")
    assert last.model.stages.strides == (2,)


def test_the_meshes_of_cvt_13():
    stages = {"kernels": (7, 3, 3), "strides": (4, 2, 2), "paddings": (2, 1, 1)}
    shape = {"image_shape": (224, 192, 3)}
    assert stage_grids(config(stages=stages, data=shape)) == ((56, 48), (28, 24), (14, 12))


def test_a_vit_is_one_stage():
    resolved = resolve_config(Config())
    assert split_stages(resolved) == (resolved,)
    assert stage_grids(resolved) == ((4, 4),)


TWO = {name: getattr(StagesConfig(), name)[:2] for name in (field.name for field in dataclasses.fields(StagesConfig))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": {"widths": ()}}, "`model.stages.widths` must be >= 1"),
        ({"stages": {**TWO, "steps": (1, 2, 3)}}, "`model.stages.steps` must have one value for each of the 2 stages"),
        ({"stages": {"num_heads": (1, 3, 4)}}, "`model.stages.num_heads` must divide the widths"),
        ({"stages": {"num_heads": (0, 2, 4)}}, "`model.stages.num_heads` must be >= 1"),
        ({"stages": {"paddings": (-1, 1, 1)}}, "`model.stages.paddings` must be >= 0"),
        ({"stages": {"key_value_strides": (2, 10**20, 2)}}, r"`model.stages.key_value_strides` must be < 2\^31"),
        ({"stages": {"projection_kernels": (3, 2, 3)}}, "`model.stages.projection_kernels` must be odd"),
        ({"stages": {"strides": (2, 2, 3)}}, "stage 3 a mesh of 8 x 8, which its stride 3 does not divide.* of 12"),
        ({"data": {"image_shape": (30, 32, 3)}}, "stage 2 a mesh of 15 x 16, which its stride 2 does not divide"),
        ({"stages": {"kernels": (3, 3, 13)}}, "leaves stage 3 no token: its kernel 13"),
        (
            {"stages": {"projection_kernels": (3, 3, 9), "key_value_paddings": (1, 1, 1)}},
            "leaves stage 3 no key: 9 is larger than its mesh of 4 x 4",
        ),
        ({"model": {"width": 96}}, "`model.width` must be left alone with the model cvt.*model.stages.widths"),
        ({"model": {"patch_size": 4}}, "`model.patch_size` must be left alone with the model cvt.*Leave it out"),
        ({"model": {"position": "sincos"}}, "`model.position` must be left alone with the model cvt"),
        ({"model": {"causal": True}}, "`model.causal` must be left alone with the model cvt"),
        ({"splitting": SplittingConfig(steps=8)}, "`splitting.steps` must be a multiple of 7"),
        ({"controls": ControlsConfig(knots=2), "splitting": SplittingConfig(steps=14)}, "`controls.knots` must be a"),
        ({"splitting": SplittingConfig(scheme="literal")}, "`model.name` must be 'vit' with the scheme literal"),
        (
            {
                "stages": {"widths": (1, 2, 4), "num_heads": (1, 1, 1)},
                "normalization": NormalizationConfig(placement="post"),
            },
            "`model.stages.widths` must be >= 2",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        resolve_config(config(**changes))


@pytest.mark.parametrize(
    "changes", [{"stages": StagesConfig(strides=(1, 2, 2))}, {"convolution_normalization": "none"}]
)
def test_a_vit_has_no_stages(changes):
    (name,) = changes
    with pytest.raises(InputError, match=f"`model.{name}` must be left alone with the model vit"):
        resolve_config(Config(model=ModelConfig(**changes)))


@pytest.mark.parametrize(
    ("field", "sections"),
    [
        ("splitting.substep", {"splitting": SplittingConfig(substep="midpoint")}),
        ("splitting.substep", {"splitting": SplittingConfig(operator_substeps=("euler", "midpoint"))}),
        ("splitting.scheme", {"splitting": SplittingConfig(scheme="strang_staggered")}),
        ("controls.knots", {"splitting": SplittingConfig(steps=14), "controls": ControlsConfig(knots=7)}),
    ],
)
def test_batch_normalisation_is_trained_as_published_alone(field, sections):
    resolved = resolve_config(config(model={"convolution_normalization": "batch"}, **sections))
    with pytest.raises(
        InputError, match=f"`{field}` .* cannot be trained with `model.convolution_normalization` batch"
    ):
        check_trainable(resolved)
    check_trainable(resolve_config(config(**sections)))


@pytest.mark.parametrize("method", ["store", "remat"])
@pytest.mark.parametrize("scheme", ["lie", "strang", "parallel", "swss"])
def test_batch_normalisation_trains_with_euler_substeps(scheme, method):
    sections = {"splitting": SplittingConfig(scheme=scheme), "gradient": GradientConfig(method=method)}
    check_trainable(resolve_config(config(model={"convolution_normalization": "batch"}, **sections)))
