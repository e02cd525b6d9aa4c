"""A small prepared data set like CIFAR-100, and a config that reads it."""

from pathlib import Path

import pytest
from small_cifar100 import define_small_cifar100

from ctt.config.schema import DataConfig


@pytest.fixture(scope="session")
def small_cifar100_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a small prepared data set named cifar100, shared: tests must not change it."""
    folder = tmp_path_factory.mktemp("tfds")
    define_small_cifar100()(data_dir=folder).download_and_prepare(file_format="array_record")
    return folder


@pytest.fixture
def cifar100_config(small_cifar100_dir: Path) -> DataConfig:
    """Config that reads the small set."""
    return DataConfig(
        name="cifar100", dir=str(small_cifar100_dir), image_shape=(32, 32, 3), num_classes=100, val_size=100
    )


@pytest.fixture(autouse=True)
def cache_root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the caches of one test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CTT_CACHE_DIR", str(folder))
    return folder
