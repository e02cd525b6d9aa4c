"""Decoded images on disk: kept, verified, and never half there."""

import contextlib
import errno
import json
import os
import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_cifar100 import NUM_TEST, NUM_TRAIN

from ctt.config.error import InputError
from ctt.config.schema import DataConfig
from ctt.data import cache, load_dataset
from ctt.data.mapped import MappedImages

TOTAL = NUM_TRAIN + NUM_TEST
RECORDS = Path("cifar100", "3.0.2", "cifar100-train.array_record-00000-of-00001")


class Load:
    """Loads a set, and keeps what was said and how far the decoding was seen to be."""

    def __init__(self, config, progress=None):
        self.said, self.progress = [], []
        self.data = load_dataset(config, progress or (lambda *numbers: self.progress.append(numbers)), self.said.append)

    @property
    def is_decoded(self):
        assert not self.progress or self.progress[-1] == (TOTAL, TOTAL)
        return bool(self.progress)


def assert_same(data, expected):
    assert data.fingerprint == expected.fingerprint
    assert data.class_names == expected.class_names
    for name in ("train", "val", "test"):
        np.testing.assert_array_equal(data.split(name).images, expected.split(name).images)
        np.testing.assert_array_equal(data.split(name).labels, expected.split(name).labels)
        assert data.split(name).labels.dtype == np.int32


@pytest.fixture
def uncached(cifar100_config):
    """The set, decoded into memory."""
    return load_dataset(replace(cifar100_config, cache=False))


@pytest.fixture
def folder(cifar100_config, cache_root):
    """The folder of the set in the cache, which is filled."""
    load_dataset(cifar100_config)
    (folder,) = (cache_root / "data").iterdir()
    return folder


def test_a_set_is_decoded_once(cifar100_config, uncached):
    first, second = Load(cifar100_config), Load(cifar100_config)
    assert (first.is_decoded, second.is_decoded) == (True, False)
    assert first.said == second.said == []
    assert_same(first.data, uncached)
    assert_same(second.data, uncached)


def test_the_images_stay_in_their_file(cifar100_config, folder):
    data = load_dataset(cifar100_config)
    assert all(isinstance(data.split(name).images, MappedImages) for name in ("train", "val", "test"))


def test_without_the_cache_nothing_is_written_and_all_is_in_memory(cifar100_config, cache_root, uncached):
    assert not any(cache_root.iterdir())
    assert type(uncached.train.images) is np.ndarray
    assert Load(replace(cifar100_config, cache=False)).is_decoded


def test_digits_are_not_cached(cache_root):
    load_dataset(DataConfig(name="digits", image_shape=(8, 8, 1), num_classes=10, val_size=180))
    assert not any(cache_root.iterdir())


def test_a_cached_set_loads_offline_and_without_tensorflow(cifar100_config, folder, uncached, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    load = Load(cifar100_config)
    assert not load.is_decoded
    assert_same(load.data, uncached)


@pytest.mark.parametrize("change", [{"val_size": 150}, {"split_seed": 1}, {"mean": (0.5, 0.5, 0.5)}])
def test_what_does_not_decide_the_pixels_does_not_decode_anew(cifar100_config, folder, change):
    assert not Load(replace(cifar100_config, **change)).is_decoded


def test_another_shape_is_decoded_anew(cifar100_config, folder):
    load = Load(replace(cifar100_config, image_shape=(16, 16, 3)))
    assert load.is_decoded
    assert load.data.train.images.shape[1:] == (16, 16, 3)


@pytest.fixture
def copied_config(cifar100_config, small_cifar100_dir, tmp_path):
    """Config that reads a copy of the small set, with the same names, sizes and times."""
    return replace(cifar100_config, dir=str(shutil.copytree(small_cifar100_dir, tmp_path / "copy")))


def test_a_copied_source_is_the_same_one(copied_config, folder):
    assert not Load(copied_config).is_decoded


def touch(path):
    os.utime(path, ns=(1, 1))


def change_the_end(path):
    """Change a byte, but neither size nor time."""
    stat = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("change", [touch, change_the_end])
def test_a_changed_source_has_another_key(copied_config, change):
    path = Path(copied_config.dir) / RECORDS
    before = cache.find_folder(Path(), {"name": "set", "files": cache.describe_files(path.parent)})
    change(path)
    assert cache.find_folder(Path(), {"name": "set", "files": cache.describe_files(path.parent)}) != before


def test_a_touched_source_is_decoded_anew(copied_config, folder):
    touch(Path(copied_config.dir) / RECORDS)
    load = Load(copied_config)
    assert load.is_decoded
    assert load.said == []


def test_another_way_to_decode_is_another_key(cifar100_config, folder, monkeypatch):
    monkeypatch.setattr("ctt.data.prepared.DECODING_VERSION", 2)
    assert Load(cifar100_config).is_decoded


def test_a_source_that_is_damaged_now_is_refused_though_cached(copied_config, folder):
    (Path(copied_config.dir) / RECORDS).write_bytes(b"")
    with pytest.raises(InputError, match="prepared files are whole"):
        load_dataset(copied_config)


def cut(name):
    def damage(folder):
        os.truncate(folder / name, (folder / name).stat().st_size // 2)

    return damage


def lengthen(folder):
    with open(folder / "test_images.npy", "ab") as file:
        file.write(b"\0")


def flip(name, position):
    def damage(folder):
        content = bytearray((folder / name).read_bytes())
        content[position] ^= 16
        (folder / name).write_bytes(content)

    return damage


def remove(name):
    def damage(folder):
        (folder / name).unlink()

    return damage


def rewrite(**changes):
    def damage(folder):
        path = folder / "cache.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


def put_a_file_there(folder):
    shutil.rmtree(folder)
    folder.write_text("not a folder")


def swap(folder):
    """Both files are whole, but each in the place of the other."""
    images, labels = (np.load(folder / f"train_{name}.npy") for name in ("images", "labels"))
    np.save(folder / "train_images.npy", images[::-1])
    np.save(folder / "train_labels.npy", labels[::-1])


DAMAGES = {
    "cut images": cut("train_images.npy"),
    "cut labels": cut("test_labels.npy"),
    "cut record": cut("cache.json"),
    "longer images": lengthen,
    "flipped pixel": flip("test_images.npy", -1),
    "flipped label": flip("train_labels.npy", -4),
    "flipped header": flip("train_images.npy", 3),
    "flipped shape": flip("train_images.npy", 70),
    "missing record": remove("cache.json"),
    "missing images": remove("train_images.npy"),
    "another format": rewrite(format=0),
    "another set": rewrite(parts={}),
    "another fingerprint": rewrite(fingerprint="0" * 64),
    "other shapes": rewrite(shapes={"train": [1, 2, 3, 4], "test": [1]}),
    "record of nothing": lambda folder: (folder / "cache.json").write_text("[]"),
    "empty": empty,
    "a file": put_a_file_there,
    "another order": swap,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_noticed_said_and_repaired(cifar100_config, folder, uncached, damage):
    damage(folder)
    load, again = Load(cifar100_config), Load(cifar100_config)
    (line,) = load.said
    assert f"{folder} are damaged (" in line
    assert line.endswith("decoded again.")
    assert "\n" not in line
    assert load.is_decoded
    assert_same(load.data, uncached)
    assert not again.is_decoded
    assert again.said == []
    assert_same(again.data, uncached)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_run_keeps_reading_what_was_deleted(cifar100_config, folder, uncached):
    data = load_dataset(cifar100_config)
    shutil.rmtree(folder)
    assert_same(data, uncached)


def assert_goes_on_without(config, uncached, reason):
    load = Load(config)
    (line,) = load.said
    assert f"cannot be kept on disk ({reason})" in line
    assert "CTT_CACHE_DIR" in line
    assert "--data.no-cache" in line
    assert load.is_decoded
    assert_same(load.data, uncached)
    assert type(load.data.train.images) is np.ndarray


def test_a_place_that_is_no_folder_costs_the_cache_alone(cifar100_config, uncached, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CTT_CACHE_DIR", str(tmp_path / "file"))
    assert_goes_on_without(cifar100_config, uncached, "Not a directory")


def test_a_read_only_folder_costs_the_cache_alone(cifar100_config, uncached, cache_root, monkeypatch):
    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    assert_goes_on_without(cifar100_config, uncached, "Permission denied")


def test_a_read_only_folder_that_holds_the_set_is_read(cifar100_config, uncached, folder, monkeypatch):
    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    load = Load(cifar100_config)
    assert load.said == []
    assert_same(load.data, uncached)


def test_a_user_without_a_home_goes_on_without(cifar100_config, uncached, monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CTT_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", fail)
    assert_goes_on_without(cifar100_config, uncached, "Could not determine home directory.")


def test_a_disk_that_is_too_small_is_seen_before_decoding(cifar100_config, uncached, cache_root, monkeypatch):
    usage = shutil.disk_usage(cache_root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=TOTAL * 32 * 32 * 3 - 1))
    assert_goes_on_without(cifar100_config, uncached, "No space left on device")
    assert not any((cache_root / "data").iterdir())


@pytest.mark.parametrize("space", [0, 200_000, 1_000_000, 1_228_000])
def test_a_disk_that_fills_up_costs_the_cache_alone(cifar100_config, uncached, cache_root, monkeypatch, space):
    left = space

    class SmallDisk:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            nonlocal left
            left -= memoryview(data).nbytes
            if left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(data)

    real = cache._synced

    @contextlib.contextmanager
    def small(path):
        with real(path) as file:
            yield SmallDisk(file)

    monkeypatch.setattr(cache, "_synced", small)
    assert_goes_on_without(cifar100_config, uncached, "No space left on device")
    assert not any((cache_root / "data").iterdir())


def test_without_a_listener_the_line_is_logged(cifar100_config, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CTT_CACHE_DIR", str(tmp_path / "file"))
    load_dataset(cifar100_config)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be kept on disk" in caplog.text


def test_an_interrupted_decoding_leaves_nothing(cifar100_config, cache_root):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Load(cifar100_config, interrupt)
    assert not any((cache_root / "data").iterdir())
