"""The fields of a recipe: what is refused, in one sentence with the way out."""

import dataclasses

import pytest

from ctt.config import Config, InputError, ModelConfig, resolve_config

CVT = ModelConfig(name="cvt")
BATCH_NORM = ModelConfig(name="cvt", convolution_normalization="batch")
FREE = {"name": "schedule_free", "schedule": "constant"}


def resolve(part, model=None, **fields):
    config = Config() if model is None else Config(model=model)
    return resolve_config(dataclasses.replace(config, **{part: dataclasses.replace(getattr(config, part), **fields)}))


@pytest.mark.parametrize(
    ("field", "value", "requirement"),
    [
        ("optimizer.momentum", 1.0, r"be in \[0, 1\)"),
        ("optimizer.momentum", -0.1, r"be in \[0, 1\)"),
        ("optimizer.b2", 1.0, r"be in \[0, 1\)"),
        ("optimizer.warmup_fraction", 1.0, r"be in \[0, 1\)"),
        ("optimizer.initial_fraction", 1.1, r"be in \[0, 1\]"),
        ("optimizer.decay_fraction", 0.0, r"be in \(0, 1\]"),
        ("optimizer.decay_fraction", 1.1, r"be in \(0, 1\]"),
        ("optimizer.layer_decay", 0.0, r"be in \(0, 1\]"),
        ("optimizer.layer_decay", 1.5, r"be in \(0, 1\]"),
        ("optimizer.layer_decay", float("nan"), r"be in \(0, 1\]"),
        ("optimizer.ema_decay", 1.0, r"be in \[0, 1\)"),
        ("optimizer.label_smoothing", 1.0, r"be in \[0, 1\)"),
        ("training.micro_batches", 0, "be >= 1"),
        ("training.micro_batches", 3, r"divide `training\.batch_size` = 64"),
        ("model.stochastic_depth", 1.0, r"be in \[0, 1\)"),
        ("model.stochastic_depth", -0.1, r"be in \[0, 1\)"),
    ],
)
def test_a_value_out_of_range_is_refused(field, value, requirement):
    part, name = field.split(".")
    with pytest.raises(InputError, match=rf"`{field}` must {requirement}, got .*pass --{field}"):
        resolve(part, **{name: value})


def test_a_decay_longer_than_what_the_warm_up_leaves_is_refused():
    with pytest.raises(
        InputError, match=r"`optimizer\.decay_fraction` must be <= 0\.7, what .*warmup_fraction` = 0\.3"
    ):
        resolve("optimizer", schedule="wsd", warmup_fraction=0.3, decay_fraction=0.8)
    assert resolve("optimizer", schedule="wsd", warmup_fraction=0.1, decay_fraction=0.9)
    assert resolve("optimizer", schedule="cosine", warmup_fraction=0.3, decay_fraction=0.8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "cosine"}, r"`optimizer\.schedule` must be constant .* Pass --optimizer\.schedule constant"),
        ({"schedule": "wsd"}, r"`optimizer\.schedule` must be constant"),
        ({"b1": 0.0}, r"`optimizer\.b1` must be > 0 with schedule_free, which divides by it"),
        ({"ema_decay": 0.9}, r"`optimizer\.ema_decay` must be None with schedule_free"),
    ],
)
def test_schedule_free_refuses_what_does_not_go_with_an_average(fields, message):
    assert resolve("optimizer", **FREE)
    with pytest.raises(InputError, match=message):
        resolve("optimizer", **(FREE | fields))


def test_schedule_free_refuses_running_averages_of_other_weights():
    assert resolve("optimizer", CVT, **FREE)
    with pytest.raises(InputError, match=r"`model\.convolution_normalization` must not be batch with schedule_free"):
        resolve("optimizer", BATCH_NORM, **FREE)


def test_statistics_of_a_batch_refuse_its_parts():
    assert resolve("training", CVT, micro_batches=4)
    assert resolve("training", BATCH_NORM, micro_batches=1)
    with pytest.raises(InputError, match=r"`training\.micro_batches` must be 1 with .*batch, whose statistics"):
        resolve("training", BATCH_NORM, micro_batches=4)
