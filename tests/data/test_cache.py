"""Decoded images on disk: kept, verified, and never half there."""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_cifar100 import NUM_TEST, NUM_TRAIN

from ctt.config.error import InputError
from ctt.config.schema import DataConfig
from ctt.data import cache, load_dataset
from ctt.data.dataset import Split
from ctt.data.fingerprint import compute_fingerprint
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


# From here on the cache alone, with a source that is decoded at once.


class Source:
    """Random examples, the same in every process; calls `pause(number of the chunk)` between chunks."""

    def __init__(self, size, pause=lambda number: None):
        self.size, self.image_shape, self.pause = size, (4, 5, 3), pause

    def __len__(self):
        return self.size

    def chunks(self, count):
        for start in range(0, self.size, 10):
            self.pause(start // 10)
            generator = np.random.default_rng(start)
            labels = generator.integers(0, 3, min(10, self.size - start), dtype=np.int32)
            yield Split(generator.integers(0, 256, (len(labels), *self.image_shape), dtype=np.uint8), labels)
            count(len(labels))


PARTS = {"name": "noise", "class_names": ["a", "b", "c"], "size": 40}


def write(root, pause=lambda number: None):
    sources = {"train": Source(40, pause), "test": Source(15)}
    return cache.write_decoded(cache.find_folder(root, PARTS), PARTS, sources, lambda number: None)


def load(root):
    return cache.load_decoded(cache.find_folder(root, PARTS), PARTS)


def whole_fingerprint():
    """Fingerprint of what `write` writes, computed from arrays in memory."""
    splits = []
    for size in (40, 15):
        chunks = list(Source(size).chunks(lambda number: None))
        images = np.concatenate([chunk.images for chunk in chunks])
        splits.append(Split(images, np.concatenate([chunk.labels for chunk in chunks])))
    return compute_fingerprint(splits)


def run_alone(code, *arguments):
    """Start a process that may use the names of this file."""
    lines = f"import sys; sys.path[:0] = {sys.path!r}; from test_cache import *; {code}"
    return subprocess.Popen([sys.executable, "-c", lines, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


KILLED = {
    "while it decodes": "write(root, lambda number: number == 2 and die())",
    "before the record": "cache.compute_fingerprint = lambda splits: die(); write(root)",
    "before the name": "os.rename = lambda *paths: die(); write(root)",
}


@pytest.mark.parametrize("code", KILLED.values(), ids=KILLED.keys())
def test_a_killed_writer_leaves_no_half_set(code, tmp_path):
    process = run_alone(
        f"root = Path(sys.argv[1]); die = lambda: os.kill(os.getpid(), signal.SIGKILL); {code}", tmp_path
    )
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".")
    assert load(tmp_path) is None
    assert write(tmp_path).fingerprint == load(tmp_path).fingerprint == whole_fingerprint()
    assert left.exists()  # It might be the work of a living process.


@pytest.mark.parametrize(("age", "is_kept"), [(60, True), (7200, False)])
def test_what_was_abandoned_is_removed_by_the_next_writer(tmp_path, age, is_kept):
    left = tmp_path / ".noise-0.1"
    left.mkdir()
    (left / "train_images.npy").touch()
    for path in (left / "train_images.npy", left):
        os.utime(path, (time.time() - age,) * 2)
    write(tmp_path)
    assert left.exists() == is_kept


def test_a_slow_writer_is_not_taken_for_abandoned(tmp_path):
    left = tmp_path / ".noise-0.1"
    left.mkdir()
    (left / "train_images.npy").touch()
    os.utime(left, (time.time() - 7200,) * 2)
    write(tmp_path)
    assert left.exists()


def test_processes_that_race_all_read_one_whole_set(tmp_path):
    code = (
        "root, start = Path(sys.argv[1]), Path(sys.argv[2]); print('ready', flush=True)\n"
        "while not start.exists(): time.sleep(0.001)\n"
        "print(write(root, lambda number: time.sleep(0.01)).fingerprint)"
    )
    root = tmp_path / "data"
    processes = [run_alone(code, root, tmp_path / "start") for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "start").touch()
    results = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert results == [whole_fingerprint()] * 3
    assert [path.name.startswith(".") for path in root.iterdir()] == [False]


def test_a_writer_that_comes_second_takes_what_is_there(tmp_path):
    data = write(tmp_path, lambda number: number == 3 and write(tmp_path))
    assert data.fingerprint == whole_fingerprint()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_writer_that_finds_a_damaged_set_replaces_it(tmp_path):
    def damage(number):
        if number == 3:
            write(tmp_path)
            cut("train_images.npy")(cache.find_folder(tmp_path, PARTS))

    assert write(tmp_path, damage).fingerprint == whole_fingerprint()
    assert len(list(tmp_path.iterdir())) == 1


def test_the_fingerprint_of_a_file_is_that_of_arrays(tmp_path, monkeypatch):
    data = write(tmp_path)
    splits = [data.train, data.test]
    assert compute_fingerprint([split.in_memory() for split in splits]) == whole_fingerprint()
    for size in (1, 61, 130, 10**9):
        monkeypatch.setattr("ctt.data.fingerprint._CHUNK_BYTES", size)
        assert compute_fingerprint(splits) == whole_fingerprint()
