import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctt.config import (
    AugmentationConfig,
    Config,
    DataConfig,
    InputError,
    ModelConfig,
    OptimizerConfig,
    SplittingConfig,
    config_from_dict,
    config_to_dict,
    name,
    resolve_config,
)
from ctt.config.serialize import flatten_config, strict_json

FRACTIONS = st.floats(0, 1, exclude_max=True)
CONFIGS = st.builds(
    Config,
    name=st.none() | st.text(),
    seed=st.integers(0, 2**32 - 1),
    data=st.builds(
        DataConfig,
        name=st.text(),
        image_shape=st.none() | st.tuples(*[st.integers(1, 512)] * 3),
        mean=st.none() | st.lists(FRACTIONS, max_size=3).map(tuple),
    ),
    augmentation=st.builds(AugmentationConfig, flip=st.booleans(), mixup=FRACTIONS),
    model=st.builds(
        ModelConfig,
        attention_biases=st.lists(st.sampled_from(["query", "key", "value", "output"]), unique=True).map(tuple),
        activation=st.sampled_from(name.ACTIVATIONS),
        dropout=FRACTIONS,
    ),
    splitting=st.builds(
        SplittingConfig,
        scheme=st.sampled_from(name.SCHEMES),
        steps=st.integers(1, 10**6),
        horizon=st.none() | st.floats(1e-300, 1e300),
    ),
    optimizer=st.builds(OptimizerConfig, clip_norm=st.none() | st.floats(1e-8, 1e8)),
)


@given(config=CONFIGS)
def test_a_config_survives_json(config):
    assert config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config


def test_a_resolved_config_survives_json():
    config = resolve_config(Config())
    assert config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config


def test_absent_fields_keep_their_defaults():
    assert config_from_dict({"splitting": {"steps": 9}}) == Config(splitting=SplittingConfig(steps=9))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sed": 1}, "`sed` is not a field of the config: did you mean `seed`"),
        ({"splitting": {"step": 1}}, r"`splitting\.step` is not a field of the config: did you mean `steps`"),
        ({"seed": "1"}, "`seed` must be of type int, got '1'"),
        ({"splitting": 3}, "`splitting` must be an object, got 3"),
        ({"splitting": {"scheme": "strnag"}}, r"`splitting\.scheme` must be a known name, got 'strnag'"),
        ({"data": {"image_shape": [8, 8]}}, r"`data\.image_shape` must be a list of 3 values, got \[8, 8\]"),
        ({"data": {"mean": [0.1, "x"]}}, r"`data\.mean` must be of type float, got 'x'"),
        ({"seed": None}, "`seed` must be of type int, got None"),
        ({"data": {"mean": [10**400]}}, r"`data\.mean` must be a number of double precision, got 10"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        config_from_dict(values)


def test_fields_of_older_versions_are_found_where_they_are_now():
    old = {"data": {"name": "digits", "crop_padding": 3, "flip": True}}
    assert config_from_dict(old).augmentation == AugmentationConfig(crop_padding=3, flip=True)
    assert config_from_dict({**old, "augmentation": {"flip": False}}).augmentation.flip is False


def test_a_config_that_is_no_object_is_refused():
    with pytest.raises(InputError, match=r"`config` must be an object, got \[\]"):
        config_from_dict([])


def test_leaves_are_keyed_by_dotted_path():
    assert flatten_config(Config(seed=3))["seed"] == 3
    assert flatten_config(Config())["splitting.scheme"] == "lie"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_does_not_know_become_null(value):
    assert strict_json({"a": [1.0, value], "b": {"c": (value,)}}) == '{"a": [1.0, null], "b": {"c": [null]}}'
