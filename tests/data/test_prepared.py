import importlib.util
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_cifar100 import NUM_TEST, NUM_TRAIN, define_small_cifar100, draw_small_image

from ctt.config.error import InputError
from ctt.config.schema import DataConfig
from ctt.data import load_dataset
from ctt.data.download import find_unreachable_host

VERSION_DIR = Path("cifar100", "3.0.2")
TRAIN_FILE = "cifar100-train.array_record-00000-of-00001"


@pytest.fixture
def offline(monkeypatch):
    """No name resolves, and no proxy is set."""

    def fail(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr("urllib.request.getproxies", dict)


@pytest.fixture
def online(monkeypatch):
    """Every name resolves, though nothing is ever sent."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [])


@pytest.fixture
def writable_dir(small_cifar100_dir, tmp_path):
    """Copy of the small prepared set, for tests that damage it."""
    return Path(shutil.copytree(small_cifar100_dir, tmp_path / "copy"))


def test_splits_of_a_prepared_set_have_their_sizes(cifar100_config):
    data = load_dataset(cifar100_config)
    assert (len(data.train), len(data.val), len(data.test)) == (NUM_TRAIN - 100, 100, NUM_TEST)


def test_pixels_of_a_prepared_set_are_the_written_ones(cifar100_config):
    data = load_dataset(cifar100_config)
    loaded = np.concatenate([data.train.images, data.val.images])
    written = [draw_small_image(index) for index in range(NUM_TRAIN)]
    assert sorted(image.tobytes() for image in loaded) == sorted(image.tobytes() for image in written)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_labels_of_a_prepared_set_are_the_fine_ones_and_stay_with_their_image(cifar100_config, split):
    data = load_dataset(cifar100_config).split(split)
    np.testing.assert_array_equal(data.labels, data.images[:, 0, 0, 0])


def test_each_class_is_held_out_once(cifar100_config):
    np.testing.assert_array_equal(np.sort(load_dataset(cifar100_config).val.labels), np.arange(100))


def test_class_names_come_from_the_label(cifar100_config):
    assert load_dataset(cifar100_config).class_names == tuple(str(index) for index in range(100))


@pytest.mark.parametrize("image_shape", [(16, 16, 3), (28, 28, 1), (40, 32, 3)])
def test_prepared_images_are_brought_to_the_models_shape(cifar100_config, image_shape):
    data = load_dataset(replace(cifar100_config, image_shape=image_shape))
    assert data.train.images.shape[1:] == image_shape


def test_the_held_out_split_does_not_change_the_fingerprint(cifar100_config):
    other = replace(cifar100_config, split_seed=1, val_size=150)
    assert load_dataset(cifar100_config).fingerprint == load_dataset(other).fingerprint


def test_progress_counts_both_splits_to_the_end(cifar100_config):
    calls = []
    load_dataset(cifar100_config, lambda done, total: calls.append((done, total)))
    assert calls[-1] == (NUM_TRAIN + NUM_TEST, NUM_TRAIN + NUM_TEST)
    assert calls == sorted(calls)


def test_loading_prints_and_logs_nothing(cifar100_config, capfd):
    load_dataset(cifar100_config)
    assert capfd.readouterr() == ("", "")


def test_reading_writes_nothing_into_the_folder(cifar100_config, writable_dir):
    before = {path: path.stat().st_mtime_ns for path in writable_dir.rglob("*")}
    load_dataset(replace(cifar100_config, dir=str(writable_dir)))
    assert {path: path.stat().st_mtime_ns for path in writable_dir.rglob("*")} == before


def test_another_version_that_is_prepared_is_read(cifar100_config, writable_dir):
    moved = (writable_dir / VERSION_DIR).rename(writable_dir / "cifar100" / "3.0.1")
    info = moved / "dataset_info.json"
    info.write_text(info.read_text().replace("3.0.2", "3.0.1"))
    data = load_dataset(replace(cifar100_config, dir=str(writable_dir)))
    assert data.fingerprint == load_dataset(cifar100_config).fingerprint


def test_neither_prepared_nor_reachable_is_refused_with_both_ways_out(cifar100_config, tmp_path, offline):
    with pytest.raises(InputError) as caught:
        load_dataset(replace(cifar100_config, dir=str(tmp_path)))
    message = str(caught.value)
    assert f"not prepared in {tmp_path / VERSION_DIR}" in message
    assert "www.cs.toronto.edu cannot be reached" in message
    assert "where there is a connection" in message
    assert f"tfds build cifar100 --file_format=array_record --data_dir={tmp_path}" in message
    assert "pass --data.dir" in message


def test_a_set_that_tfds_cannot_prepare_here_is_refused_before_the_download(
    cifar100_config, tmp_path, online, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs TensorFlow to prepare .*--data_dir="):
        load_dataset(replace(cifar100_config, dir=str(tmp_path)))


def test_a_set_that_is_not_prepared_is_downloaded_and_read(cifar100_config, tmp_path, online, monkeypatch):
    import tensorflow_datasets as tfds

    builder_class = define_small_cifar100()
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir, version=None: builder_class(data_dir=data_dir))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    data = load_dataset(replace(cifar100_config, dir=str(tmp_path)))
    assert data.fingerprint == load_dataset(cifar100_config).fingerprint
    assert (tmp_path / VERSION_DIR / TRAIN_FILE).exists()


def raise_no_tensorflow(*args, **kwargs):
    raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")


def raise_refused(*args, **kwargs):
    raise ConnectionError("Connection\nrefused")


@pytest.mark.parametrize(
    ("fail", "match"),
    [
        (raise_no_tensorflow, "preparing it here needs tensorflow, which is not installed"),
        (raise_refused, r"the download failed \(Connection refused\)"),
    ],
)
def test_a_failed_download_is_one_clear_error(cifar100_config, tmp_path, online, monkeypatch, fail, match):
    import tensorflow_datasets as tfds

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(InputError, match=match):
        load_dataset(replace(cifar100_config, dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": "cifar11"}, r"`data.name` must be .* got 'cifar11': did you mean `cifar10`\? Known: digits, mnist"),
        ({"name": "imagenete"}, "did you mean `imagenette`"),
        ({"name": "../cifar100"}, "`data.name` must be .* got '../cifar100'"),
        ({"name": "cifar100/blue"}, "`data.name` must be .* config and version .* got 'cifar100/blue'"),
        ({"name": "cifar100:9.0.0"}, "`data.name` must be .* config and version .* got 'cifar100:9.0.0'"),
        ({"dir": "no/such/folder"}, "`data.dir` must be an existing folder .* got 'no/such/folder'"),
        ({"num_classes": 20}, r"`data.num_classes` must be 100, .* got 20\. .*--data.num_classes 100"),
        ({"val_size": NUM_TRAIN}, f"`data.val_size` must be >= 1 and < {NUM_TRAIN}, .* got {NUM_TRAIN}"),
        ({"image_shape": None}, "`data.image_shape` must be known, got None"),
    ],
)
def test_a_config_that_does_not_fit_the_set_is_refused(cifar100_config, change, match):
    with pytest.raises(InputError, match=match):
        load_dataset(replace(cifar100_config, **change))


def remove_records(folder):
    (folder / TRAIN_FILE).unlink()


def halve_records(folder):
    records = (folder / TRAIN_FILE).read_bytes()
    (folder / TRAIN_FILE).write_bytes(records[: len(records) // 2])


def empty_records(folder):
    (folder / TRAIN_FILE).write_bytes(b"")


def blank_records(folder):
    records = bytearray((folder / TRAIN_FILE).read_bytes())
    middle = len(records) // 2
    records[middle : middle + 3000] = bytes(3000)
    (folder / TRAIN_FILE).write_bytes(records)


def break_metadata(folder):
    (folder / "dataset_info.json").write_text("{")


@pytest.mark.parametrize("damage", [remove_records, halve_records, empty_records, blank_records, break_metadata])
def test_damaged_files_are_refused(cifar100_config, writable_dir, damage):
    damage(writable_dir / VERSION_DIR)
    with pytest.raises(InputError, match=r"prepared files are whole, got 'cifar100' in .*Delete that folder"):
        load_dataset(replace(cifar100_config, dir=str(writable_dir)))


def replace_in_info(folder, old, new):
    path = folder / VERSION_DIR / "dataset_info.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_format_that_needs_tensorflow_is_refused(cifar100_config, writable_dir):
    replace_in_info(writable_dir, '"array_record"', '"tfrecord"')
    with pytest.raises(InputError, match=r"must hold data in array_record format, .* in tfrecord format. Prepare"):
        load_dataset(replace(cifar100_config, dir=str(writable_dir)))


def test_a_validation_split_stands_in_for_a_missing_test_split(cifar100_config, writable_dir):
    replace_in_info(writable_dir, '"name": "test"', '"name": "validation"')
    folder = writable_dir / VERSION_DIR
    (folder / TRAIN_FILE.replace("train", "test")).rename(folder / TRAIN_FILE.replace("train", "validation"))
    assert len(load_dataset(replace(cifar100_config, dir=str(writable_dir))).test) == NUM_TEST


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_set_without_train_or_test_is_refused(cifar100_config, writable_dir, split):
    replace_in_info(writable_dir, f'"name": "{split}"', '"name": "extra"')
    with pytest.raises(InputError, match=r"must be a set with the splits train and test .*extra"):
        load_dataset(replace(cifar100_config, dir=str(writable_dir)))


def test_a_set_without_an_image_is_refused(tmp_path):
    import tensorflow_datasets as tfds

    class SmallTable(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"value": tfds.features.Scalar(np.int64), "label": tfds.features.ClassLabel(num_classes=2)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(), "test": self._generate_examples()}

        def _generate_examples(self):
            for index in range(4):
                yield index, {"value": index, "label": index % 2}

    SmallTable(data_dir=tmp_path).download_and_prepare(file_format="array_record")
    config = DataConfig(name="small_table", dir=str(tmp_path), image_shape=(8, 8, 1), num_classes=2, val_size=2)
    with pytest.raises(InputError, match=r"must be a set with an `image` .* got 'small_table' with label, value"):
        load_dataset(config)


def test_a_proxy_is_resolved_in_place_of_the_host(monkeypatch):
    asked = []
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy.example:3128"})
    monkeypatch.setattr("urllib.request.proxy_bypass", lambda host: False)
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *args: asked.append(host))
    assert find_unreachable_host(["https://data.example/a", "https://data.example/b"]) is None
    assert asked == ["proxy.example"]


def test_the_prepared_cifar10_opens_with_its_official_sizes(monkeypatch):
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("CTT_TEST_DATA", root.parent / "shared" / "data" / "tfds"))
    if not (folder / "cifar10").is_dir():
        pytest.skip(f"no prepared cifar10 in {folder}; set CTT_TEST_DATA")

    import tensorflow_datasets as tfds

    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop(done, total)

    config = DataConfig(name="cifar10", dir=str(folder), image_shape=(32, 32, 3), num_classes=10, val_size=5000)
    with pytest.raises(Stop) as caught:
        load_dataset(config, stop)
    assert caught.value.args[1] == 60000
    assert tfds.builder("cifar10", data_dir=folder).info.features["label"].int2str(0) == "airplane"
