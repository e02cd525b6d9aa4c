import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctt.config import (
    AugmentationConfig,
    Config,
    ControlsConfig,
    DataConfig,
    InputError,
    ModelConfig,
    SplittingConfig,
    resolve_config,
)
from ctt.config.dataset import KNOWN_DATASETS


def change(path, value, config=None):
    config = config or Config()
    head, _, leaf = path.rpartition(".")
    if not head:
        return dataclasses.replace(config, **{leaf: value})
    return dataclasses.replace(config, **{head: dataclasses.replace(getattr(config, head), **{leaf: value})})


@pytest.mark.parametrize("name", KNOWN_DATASETS)
def test_resolving_twice_changes_nothing(name):
    once = resolve_config(Config(data=DataConfig(name=name), model=ModelConfig(patch_size=4)))
    assert resolve_config(once) == once


@given(
    knots=st.integers(1, 6),
    multiple=st.integers(1, 4),
    horizon=st.none() | st.floats(1e-3, 1e3),
    is_given=st.booleans(),
)
def test_resolving_any_time_grid_twice_changes_nothing(knots, multiple, horizon, is_given):
    config = Config(
        splitting=SplittingConfig(steps=knots * multiple, horizon=horizon),
        controls=ControlsConfig(knots=knots if is_given else None),
    )
    once = resolve_config(config)
    assert resolve_config(once) == once


@pytest.mark.parametrize("name", KNOWN_DATASETS)
def test_the_facts_of_a_known_data_set_are_filled_in(name):
    data = resolve_config(Config(data=DataConfig(name=name), model=ModelConfig(patch_size=4))).data
    facts = KNOWN_DATASETS[name]
    received = (data.image_shape, data.num_classes, data.mean, data.std, data.val_size)
    assert received == (facts.image_shape, facts.num_classes, facts.mean, facts.std, facts.val_size)


def test_given_facts_are_kept():
    given_ = DataConfig(name="digits", num_classes=10, mean=(0.1,), std=(0.2,), val_size=7)
    data = resolve_config(Config(data=given_)).data
    assert (data.num_classes, data.mean, data.std, data.val_size) == (10, (0.1,), (0.2,), 7)


@pytest.mark.parametrize("missing", ["image_shape", "num_classes", "val_size"])
def test_an_unknown_data_set_needs_its_facts(missing):
    facts = {"image_shape": (8, 8, 3), "num_classes": 5, "val_size": 9} | {missing: None}
    with pytest.raises(InputError, match=rf"`data\.{missing}` must be given for the data set `mine`"):
        resolve_config(Config(data=DataConfig(name="mine", **facts)))


def test_an_unknown_data_set_has_general_statistics():
    given_ = DataConfig(name="mine", image_shape=(8, 8, 3), num_classes=5, val_size=9)
    data = resolve_config(Config(data=given_)).data
    assert (data.mean, data.std) == ((0.5,) * 3, (0.25,) * 3)


def test_the_horizon_is_the_number_of_steps_unless_given():
    assert resolve_config(change("splitting.steps", 6)).splitting.horizon == 6.0


def test_a_knot_a_step_unless_given():
    assert resolve_config(change("splitting.steps", 6)).controls.knots == 6


def test_a_given_horizon_is_kept():
    assert resolve_config(change("splitting.horizon", 0.5)).splitting.horizon == 0.5


@pytest.mark.parametrize(
    ("path", "value", "requirement"),
    [
        ("seed", -1, r"be in \[0, 2\^32\)"),
        ("seed", 2**32, r"be in \[0, 2\^32\)"),
        ("name", "a/b", "be a plain folder name"),
        ("name", "..", "be a plain folder name"),
        ("data.image_shape", (0, 8, 1), r"have sides >= 1 and < 2\^31"),
        ("data.image_shape", (8, 8, 2), "have 1 or 3 channels"),
        ("data.num_classes", 1, "be >= 2"),
        ("data.val_size", 0, "be >= 1"),
        ("data.split_seed", -1, r"be in \[0, 2\^32\)"),
        ("data.mean", (0.1, 0.2), r"have one value a channel \(1\)"),
        ("data.std", (0.0,), "be > 0"),
        ("augmentation.crop_padding", -1, "be >= 0"),
        ("augmentation.randaugment_magnitude", 10.5, "be <= 10"),
        ("augmentation.mix_probability", 1.5, r"be in \[0, 1\]"),
        ("model.patch_size", 0, "be >= 1"),
        ("model.patch_size", 3, "divide the image's height 8 and width 8"),
        ("model.width", 0, "be >= 1"),
        ("model.num_heads", 3, r"divide `model\.width` = 64"),
        ("model.feedforward_width", 0, "be >= 1"),
        ("model.attention_biases", ("query", "query"), "name each projection once"),
        ("model.dropout", 1.0, r"be in \[0, 1\)"),
        ("model.dropout", -0.1, r"be in \[0, 1\)"),
        ("normalization.eps", -1e-6, "be >= 0"),
        ("splitting.steps", 0, "be >= 1"),
        ("splitting.horizon", 0.0, "be > 0 and finite"),
        ("splitting.horizon", -1.0, "be > 0 and finite"),
        ("splitting.horizon", math.inf, "be > 0 and finite"),
        ("splitting.horizon", math.nan, "be > 0 and finite"),
        ("controls.knots", 0, "be >= 1"),
        ("controls.knots", 3, r"divide `splitting\.steps` = 4"),
        ("optimizer.learning_rate", 0.0, "be > 0 and finite"),
        ("optimizer.weight_decay", -1.0, "be >= 0"),
        ("optimizer.b1", 1.0, r"be in \[0, 1\)"),
        ("optimizer.final_fraction", 1.5, r"be in \[0, 1\]"),
        ("optimizer.clip_norm", 0.0, "be > 0 and finite"),
        ("training.epochs", 0.0, "be > 0 and finite"),
        ("training.batch_size", 0, "be >= 1"),
        ("training.steps", 0, "be >= 1"),
        ("training.eval_every", 0, "be >= 1"),
        ("data.image_shape", (2**31, 8, 1), r"have sides >= 1 and < 2\^31"),
        ("data.num_classes", 2**31, r"be < 2\^31"),
        ("model.width", 10**20, r"be < 2\^31"),
        ("splitting.steps", 2**31, r"be < 2\^31"),
        ("training.batch_size", 2**31, r"be < 2\^31"),
        ("normalization.eps", math.inf, "be finite"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_field_requirement_and_remedy(path, value, requirement):
    with pytest.raises(InputError, match=rf"`{path}` must {requirement}, got .*pass --{path}"):
        resolve_config(change(path, value))


@pytest.mark.parametrize("options", [{"randaugment": 1}, {"color_jitter": 0.1}])
def test_colours_are_augmented_up_to_a_size(options):
    data = DataConfig(name="mine", image_shape=(16, 4096, 3), num_classes=2, val_size=2)
    config = Config(data=data, model=ModelConfig(patch_size=16), augmentation=AugmentationConfig(**options))
    with pytest.raises(InputError, match=r"`augmentation\.\w+` must be 0 for images with a side over 2048 pixels"):
        resolve_config(config)
    resolve_config(dataclasses.replace(config, data=dataclasses.replace(data, image_shape=(16, 2048, 3))))


def test_fixed_positions_need_a_width_that_is_a_multiple_of_four():
    config = Config(model=ModelConfig(width=6, num_heads=2, position="sincos"))
    with pytest.raises(InputError, match=r"`model\.width` must be a multiple of 4"):
        resolve_config(config)
