"""The configs for an accelerator train: as they are (slow), and with a narrow network (quick)."""

import math
from pathlib import Path

import numpy as np
import pytest

from ctt.config import load_config
from ctt.data.dataset import Dataset, Split
from ctt.training.loop import train

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SHORT = ["--training.steps", "3", "--training.batch-size", "16", "--training.eval-batch-size", "16"]
SHORT += ["--training.no-certify", "--logging.no-tensorboard"]
NARROW = ["--model.width", "8", "--model.feedforward-width", "8", "--model.patch-size", "16", "--splitting.steps", "2"]
NARROW += ["--model.num-heads", "2"]


@pytest.fixture
def draw_dataset():
    """Return a maker of a small set of random images that is shaped as a config's."""

    def draw(config):
        generator, classes = np.random.default_rng(0), config.data.num_classes
        splits = (
            Split(
                generator.integers(0, 256, (size, *config.data.image_shape), np.uint8),
                generator.integers(0, classes, size, np.int32),
            )
            for size in (64, 16, 16)
        )
        return Dataset(*splits, class_names=tuple(str(index) for index in range(classes)), fingerprint="f" * 64)

    return draw


@pytest.fixture
def train_shortly(draw_dataset, tmp_path):
    """Return a function that trains three steps of a config and returns config and summary."""

    def train_config(name, *words):
        config = load_config(CONFIGS / f"{name}.py", [*SHORT, *words])
        return config, train(config, out=tmp_path / "run", dataset=draw_dataset(config))

    return train_config


def check(config, summary):
    assert summary["steps"] == 3
    # An untrained network, with smoothing and mixtures of labels, is not far from chance.
    assert summary["train_loss"] == pytest.approx(math.log(config.data.num_classes), rel=0.5)
    assert math.isfinite(summary["test_loss"])


def test_the_recipe_trains_a_narrow_network(compilation_cache, train_shortly):
    check(*train_shortly("cifar10_vit", *NARROW))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10_vit", "cifar10_vit_strang", "cifar10_cvt", "cifar100_vit", "cifar100_cvt"])
def test_a_config_for_an_accelerator_trains(compilation_cache, train_shortly, name):
    check(*train_shortly(name))
