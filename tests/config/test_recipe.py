"""The recipe of Compact-Transformers, and the configs that use a form of it."""

from pathlib import Path

import pytest

from ctt.config import load_config
from ctt.config.serialize import flatten_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

PUBLISHED = {
    "augmentation.randaugment": 2,
    "augmentation.randaugment_magnitude": 9.0,
    "augmentation.randaugment_magnitude_std": 0.5,
    "augmentation.color_jitter": 0.0,
    "augmentation.erasing": 0.25,
    "augmentation.mixup": 0.8,
    "augmentation.cutmix": 1.0,
    "augmentation.mix_probability": 1.0,
    "augmentation.cutmix_share": 0.5,
    "model.stochastic_depth": 0.1,
    "model.dropout": 0.0,
    "model.dtype": "bfloat16",
    "optimizer.name": "adamw",
    "optimizer.weight_decay": 0.06,
    "optimizer.schedule": "cosine",
    "optimizer.label_smoothing": 0.1,
    "optimizer.ema_decay": None,
    "training.epochs": 300,
    "training.batch_size": 128,
}
"""SHI-Labs/Compact-Transformers, configs/datasets/cifar10.yml; timm switches colour jitter off beside RandAugment."""

NAMES = ["cifar10_vit", "cifar10_vit_strang", "cifar10_cvt", "cifar100_vit", "cifar100_cvt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_config_for_an_accelerator_has_the_published_recipe(name):
    config = load_config(CONFIGS / f"{name}.py")
    values, optimizer = flatten_config(config), config.optimizer
    assert {field: values[field] for field in PUBLISHED} == PUBLISHED
    assert optimizer.warmup_fraction * config.training.epochs == pytest.approx(10)  # Epochs.
    peak, first = (6e-4, 1e-6) if name.startswith("cifar100") else (5.5e-4, 1e-5)
    assert optimizer.learning_rate == pytest.approx(peak)
    assert optimizer.learning_rate * optimizer.initial_fraction == pytest.approx(first)
    assert optimizer.learning_rate * optimizer.final_fraction == pytest.approx(1e-5)
    assert config.data.num_classes == (100 if name.startswith("cifar100") else 10)


def test_the_published_recipe_itself_can_be_told_by_flags():
    words = (
        "--augmentation.randaugment 2 --augmentation.randaugment-magnitude 9 --augmentation.randaugment-magnitude-std "
    )
    words += "0.5 --augmentation.erasing 0.25 --augmentation.mixup 0.8 --augmentation.cutmix 1.0 --augmentation.flip "
    words += "--model.stochastic-depth 0.1 --model.dtype bfloat16 --optimizer.learning-rate 5.5e-4 "
    words += (
        "--optimizer.weight-decay 0.06 --optimizer.label-smoothing 0.1 --optimizer.warmup-fraction 0.0333333333333 "
    )
    words += "--optimizer.initial-fraction 0.0181818181818 --optimizer.final-fraction 0.0181818181818 "
    words += "--optimizer.clip-norm None --training.epochs 300 --training.batch-size 128"
    config = load_config("vit_lite_7_4", words.split())
    values = flatten_config(config)
    assert {field: values[field] for field in PUBLISHED} == PUBLISHED
    assert config.optimizer.clip_norm is None
    assert config.augmentation.crop_padding == 0


@pytest.mark.parametrize("name", ["cifar10_vit_strang", "cifar10_cvt"])
def test_configs_share_the_recipe_of_the_plain_vit(name):
    plain, other = load_config(CONFIGS / "cifar10_vit.py"), load_config(CONFIGS / f"{name}.py")
    assert (plain.optimizer, plain.augmentation, plain.training) == (
        other.optimizer,
        other.augmentation,
        other.training,
    )


def test_the_strang_config_is_the_plain_network_with_other_steps_in_time():
    plain, strang = load_config(CONFIGS / "cifar10_vit.py"), load_config(CONFIGS / "cifar10_vit_strang.py")
    assert strang.model == plain.model
    assert (strang.splitting.scheme, strang.splitting.substep, strang.splitting.steps) == ("strang", "midpoint", 7)
