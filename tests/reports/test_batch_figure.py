"""The figure of a training batch: what it shows is what the update sees."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import ctt.training.step as step_module
from ctt.config import AugmentationConfig, DataConfig
from ctt.data.dataset import Dataset, Split
from ctt.data.sampler import batch_indices
from ctt.models.build import build_model
from ctt.reports.batch import describe_augmentation, draw_batch, plot_batch
from ctt.reports.style import save_figure
from ctt.training.state import Batch
from ctt.training.step import build_update

MIXED = AugmentationConfig(crop_padding=1, flip=True, color_jitter=0.4, mixup=0.8, cutmix=1.0)


def make_dataset(channels=1, num_examples=80):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (num_examples, 4, 6, channels), dtype=np.uint8)
    split = Split(images, np.arange(num_examples, dtype=np.int32) % 3)
    return Dataset(split, split, split, ("cat", "<b>&dog</b>", "a name that is far too long for it"), "0" * 64)


@pytest.fixture
def config(tiny_config):
    config = tiny_config({"training.batch_size": 40, "seed": 3})
    return dataclasses.replace(config, augmentation=MIXED)


class SeenError(Exception):
    """The update has augmented its batch, and need not go on."""


def see(config, dataset, monkeypatch):
    """Return what the first update makes of its batch."""
    seen = []
    original = step_module.augment

    def spy(*arguments, **options):
        seen.append(original(*arguments, **options))
        raise SeenError

    size = config.training.batch_size
    chosen = batch_indices(config.seed, 0, num_examples=len(dataset.train), batch_size=size)
    batch = Batch(*(jnp.asarray(values) for values in (dataset.train.images[chosen], dataset.train.labels[chosen])))
    state, update = build_update(config, build_model(config), 10)
    with monkeypatch.context() as patch:
        patch.setattr(step_module, "augment", spy)
        with pytest.raises(SeenError):
            update(state, batch)
    return seen[0]


@pytest.mark.parametrize("batch_size", [5, 24, 40])
def test_the_figure_shows_what_the_first_update_sees(config, monkeypatch, batch_size):
    training = dataclasses.replace(config.training, batch_size=batch_size)
    config, dataset = dataclasses.replace(config, training=training), make_dataset()
    expected, examples = see(config, dataset, monkeypatch), draw_batch(config, dataset)
    count = min(batch_size, 12)
    assert len(examples.names) == len(examples.captions) == count
    np.testing.assert_array_equal(examples.augmented, expected.images[:count])
    for caption, shares in zip(examples.captions, np.asarray(expected.labels), strict=False):
        assert caption.count(" + ") == (shares > 0.005).sum() - 1


def test_without_mixtures_a_caption_is_a_class(config):
    config = dataclasses.replace(config, augmentation=AugmentationConfig(flip=True))
    examples = draw_batch(config, make_dataset())
    assert examples.captions == examples.names
    is_flipped = (examples.augmented == examples.originals[:, :, ::-1]).all((1, 2, 3))
    assert (is_flipped | (examples.augmented == examples.originals).all((1, 2, 3))).all()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_figure_is_the_same_file_each_time(config, tmp_path, kind):
    examples = draw_batch(config, make_dataset())
    paths = [tmp_path / name / f"batch.{kind}" for name in ("a", "b")]
    for path in paths:
        save_figure(plot_batch(config, examples), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [path.name for path in tmp_path.rglob("*.*")] == [f"batch.{kind}"] * 2


def test_colours_are_drawn(tiny_config, tmp_path):
    data = DataConfig(name="tiny", image_shape=(4, 6, 3), num_classes=3, val_size=5, mean=(0.3,) * 3, std=(0.4,) * 3)
    config = dataclasses.replace(tiny_config({"training.batch_size": 3}), data=data, augmentation=MIXED)
    examples = draw_batch(config, make_dataset(channels=3))
    save_figure(plot_batch(config, examples), tmp_path / "batch.png")
    assert examples.augmented.shape == (3, 4, 6, 3)


def test_words_say_what_is_done():
    assert describe_augmentation(AugmentationConfig()) == "no augmentation"
    config = AugmentationConfig(randaugment=2, erasing=0.25, mixup=0.8, mix_probability=0.5)
    expected = "RandAugment (2 operations, magnitude 9 ± 0.5), erasing 25%, mixup 0.8 (50% of the images are mixed)"
    assert describe_augmentation(config) == expected
