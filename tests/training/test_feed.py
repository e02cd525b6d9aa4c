"""How many steps the device is sent at a time."""

import dataclasses

import numpy as np
import pytest

from ctt.config import Config, DataConfig, ModelConfig, TrainingConfig, resolve_config
from ctt.data.dataset import Split
from ctt.training.devices import build_layout
from ctt.training.feed import build_feed
from ctt.training.milestone import Milestones


@pytest.fixture
def build():
    def make(kind, steps_per_dispatch, *, side=8, longest=50):
        config = resolve_config(
            Config(
                name="feed",
                data=DataConfig(
                    name="mine",
                    image_shape=(side, side, 1),
                    num_classes=2,
                    mean=(0.5,),
                    std=(0.2,),
                    val_size=2,
                    input=kind,
                ),
                model=ModelConfig(patch_size=side),
                training=TrainingConfig(batch_size=4, steps_per_dispatch=steps_per_dispatch),
            )
        )
        split = Split(np.zeros((8, side, side, 1), np.uint8), np.zeros(8, np.int32))
        layout = build_layout(dataclasses.replace(config.devices, data=1), 4)
        return build_feed(config, split, layout, Milestones(1000, longest, 100, 100), first=0)

    return make


@pytest.mark.parametrize("kind", ["resident", "stream"])
def test_a_chunk_has_no_more_steps_than_lie_between_two_milestones(build, kind):
    assert build(kind, 16).rows == 16
    assert build(kind, 10**6).rows == 50
    assert build(kind, 16, longest=3).rows == 3


def test_a_chunk_of_large_images_has_fewer_steps(build):
    feed = build("stream", 16, side=4096)
    assert feed.rows == 4  # Of 4 x 16 MiB each, a quarter of a gibibyte in all.
    assert build("resident", 16, side=4096).rows == 16
    feed.close()
