"""The writer of the cache, killed and in races, with a source that is decoded at once."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ctt.data import cache
from ctt.data.dataset import Split
from ctt.data.fingerprint import compute_fingerprint


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
    lines = (
        f"import sys; sys.path[:0] = {sys.path!r}; from pathlib import Path; from test_cache_writer import *; {code}"
    )
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
            os.truncate(cache.find_folder(tmp_path, PARTS) / "train_images.npy", 1000)

    assert write(tmp_path, damage).fingerprint == whole_fingerprint()
    assert len(list(tmp_path.iterdir())) == 1


def test_the_fingerprint_of_a_file_is_that_of_arrays(tmp_path, monkeypatch):
    data = write(tmp_path)
    splits = [data.train, data.test]
    assert compute_fingerprint([split.in_memory() for split in splits]) == whole_fingerprint()
    for size in (1, 61, 130, 10**9):
        monkeypatch.setattr("ctt.data.fingerprint._CHUNK_BYTES", size)
        assert compute_fingerprint(splits) == whole_fingerprint()
