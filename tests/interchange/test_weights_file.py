"""Files of weights: every form is read, and of every bad one the user learns what it is and the way out."""

import hashlib
import json
import re
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from ctt.config import InputError
from ctt.interchange.tensors import read_weights

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(3, np.int64), "c": np.zeros((0, 2))}


@pytest.fixture
def weights(tmp_path):
    """A folder with a file of weights and its two companions."""
    folder = tmp_path / "folder"
    folder.mkdir()
    save_file(TENSORS, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "vit"}')
    (folder / "preprocessor_config.json").write_text('{"size": 3}')
    return folder


@pytest.mark.parametrize("name", ["", "model.safetensors"])
def test_a_file_and_its_folder_are_the_same(weights, name):
    file = read_weights(weights / name)
    assert file.tensors.keys() == TENSORS.keys()
    for key, tensor in TENSORS.items():
        assert file.tensors[key].dtype == tensor.dtype
        np.testing.assert_array_equal(file.tensors[key], tensor)
    assert (file.config, file.preprocessor) == ({"model_type": "vit"}, {"size": 3})
    assert file.name == (name or "folder")
    assert file.sha256 == hashlib.sha256((weights / "model.safetensors").read_bytes()).hexdigest()


def test_a_link_keeps_its_own_name(weights, tmp_path):
    (tmp_path / "mine.safetensors").symlink_to(weights / "model.safetensors")
    file = read_weights(tmp_path / "mine.safetensors")
    assert (file.name, file.config) == ("mine.safetensors", {})


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_half_precision_is_widened_exactly(tmp_path, dtype):
    values = np.random.default_rng(0).standard_normal(100).astype(dtype)
    save_file({"a": values}, tmp_path / "half.safetensors")
    received = read_weights(tmp_path / "half.safetensors").tensors["a"]
    assert received.dtype == np.float32
    np.testing.assert_array_equal(received, values.astype(np.float32))


def write_shards(folder, weight_map):
    save_file({"a": TENSORS["a"]}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": TENSORS["b"]}, folder / "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


SHARDS = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}


def test_shards_are_read_together(tmp_path):
    write_shards(tmp_path, SHARDS)
    file = read_weights(tmp_path)
    assert file.tensors.keys() == {"a", "b"}
    blocks = [(tmp_path / name).read_bytes() for name in sorted(SHARDS.values())]
    assert file.sha256 == hashlib.sha256(b"".join(blocks)).hexdigest()


@pytest.mark.parametrize(
    ("weight_map", "match"),
    [
        ({**SHARDS, "c": "model-00003-of-00003.safetensors"}, "lacks model-00003-of-00003.safetensors of its index"),
        ({**SHARDS, "c": "../model.safetensors"}, "must name files of its own folder"),
        ({}, "lacks shards of its index"),
        (["a"], "lacks shards of its index"),
        ({"a": 3}, "lacks 3 of its index"),
    ],
)
def test_an_index_without_its_shards_is_refused(tmp_path, weight_map, match):
    write_shards(tmp_path, weight_map)
    with pytest.raises(InputError, match=match):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [b"", b"some text", b"\x08\0\0\0\0\0\0\0{}      ", b"\xff" * 100, b"\0" * 4])
@pytest.mark.parametrize("name", ["model.safetensors", "model.other"])
def test_what_is_no_safetensors_file_is_refused(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"must (be a whole safetensors file|hold tensors)"):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("share", [0.2, 0.9, 0.99])
def test_a_file_cut_short_is_refused(weights, share):
    path = weights / "model.safetensors"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match="must be a whole safetensors file"):
        read_weights(path)


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, jnp.float8_e4m3fn, np.uint32])
def test_what_no_weights_are_made_of_is_refused(tmp_path, dtype):
    save_file({"a": np.zeros(3, dtype)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"but a is of type .*Give unquantised weights"):
        read_weights(tmp_path)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("nothing/at/all", "does not exist"),
        ("nothing.safetensors", "does not exist"),
        ("models/nothing.safetensors", "does not exist"),
        ("models/nothing.bin", "does not exist"),
        (".", "must hold one of model.safetensors, pytorch_model.bin"),
        ("model.safetensors", "must be a file of weights, got something else"),
    ],
)
def test_a_path_without_weights_is_refused(tmp_path, monkeypatch, name, match):
    monkeypatch.chdir(tmp_path)
    if name == "model.safetensors":
        (tmp_path / name).symlink_to("/dev/null")
    with pytest.raises(InputError, match=re.escape(match)):
        read_weights(name)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"text"', "\xff", "[" * 100000])
@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json"])
def test_a_companion_that_is_no_json_object_is_refused(weights, name, text):
    (weights / name).write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=rf"{name}` must (be JSON|hold a JSON object)"):
        read_weights(weights)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_a_torch_file_without_torch_names_the_remedy(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / name).write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(InputError, match=r"needs torch.*ctt-jax\[parity\].*convert.*safetensors"):
        read_weights(tmp_path / name)


def test_a_name_on_the_hub_without_its_library_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"needs the package huggingface_hub.*ctt-jax\[hub\]"):
        read_weights("google/vit-base-patch16-224")


def test_a_name_on_the_hub_without_a_connection_is_refused(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)

    def fail(*args, **kwargs):
        raise OSError("Cannot find the files in the cache and outgoing traffic is disabled.\nMore.")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(
        InputError, match=r"could not be had from the Hub .OSError: Cannot find.*give its path"
    ) as error:
        read_weights("google/vit-base-patch16-224")
    assert "\n" not in str(error.value)


def test_a_model_of_the_hub_keeps_its_name(weights, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **_: asked.append(name) or str(weights))
    file = read_weights("google/vit")
    assert (asked, file.name, file.config) == (["google/vit"], "google/vit", {"model_type": "vit"})


def test_a_path_wins_over_the_hub(weights, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "google").mkdir()
    weights.rename(tmp_path / "google" / "vit")
    assert read_weights("google/vit").tensors.keys() == TENSORS.keys()
