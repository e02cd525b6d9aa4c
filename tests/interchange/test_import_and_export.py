"""`ctt import` and `ctt export`: what they make can be used as any run, and nothing that is there is changed."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tiny_run import hash_tree

from ctt.cli.main import main
from ctt.training.run import load_run

REMEDY = re.compile(r"\b(pass|give|choose|check|mend|go on|install|set (it|the))\b", re.IGNORECASE)


@pytest.fixture
def workplace(compilation_cache, vit_folder, tmp_path, monkeypatch):
    """A working folder with the weights of a ViT that knows the digits' size."""
    vit_folder("huggingface", {"data.mean": (0.305,), "data.std": (0.376,)})
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    return tmp_path


def run(words):
    return main(words.split())


@pytest.fixture
def imported(workplace):
    """The run of those weights."""
    assert run("import theirs --out run --data.name digits --json import.json") == 0
    return workplace / "run"


def test_an_imported_run_has_the_form_of_any(imported, workplace, assert_same_state):
    config, manifest = (json.loads((imported / name).read_text()) for name in ("config.json", "manifest.json"))
    assert (config["name"], config["data"]["name"], config["data"]["val_size"]) == ("run", "digits", 180)
    splitting = config["splitting"]
    assert (splitting["scheme"], splitting["substep"], splitting["horizon"]) == ("lie", "euler", splitting["steps"])
    assert manifest["data_fingerprint"] is None
    assert manifest["class_names"] == list("0123456789")
    origin = manifest["origin"]
    assert (origin["file"], origin["naming"], origin["architecture"]) == ("theirs", "huggingface", "vit")
    printed = json.loads((workplace / "import.json").read_text())
    assert printed["sha256"] == origin["sha256"]
    loaded = load_run(imported)
    assert loaded.step == 0
    assert loaded.metrics == []


def test_an_imported_run_can_be_used_as_any(imported, capsys):
    assert run("predict run image.png --json predict.json") == 0
    assert run("eval run --split val --json eval.json") == 0
    words = "--splitting.scheme strang --splitting.substep midpoint --splitting.steps 6"
    assert run(f"eval run --split val {words}") == 0
    assert run("train --init run --out trained --training.steps 2 --training.batch-size 8 --training.no-certify") == 0
    assert load_run("trained").step == 2
    assert "Warning" not in capsys.readouterr().out


def test_a_run_without_a_data_set_asks_for_one(workplace, capsys):
    assert run("import theirs --out run") == 0
    assert run("eval run") == 2
    assert run("train --init run --out trained --training.no-certify") == 2
    assert capsys.readouterr().err.count("Pass --data.name") == 2
    assert not (workplace / "trained").exists()
    assert run("eval run --data.name digits --split val --json eval.json") == 0
    assert json.loads((workplace / "eval.json").read_text())["num_examples"] == 180
    assert run("eval run --data.name cifar100") == 2
    assert "must be 100, the number of classes of cifar100" in capsys.readouterr().err


def test_there_and_back_changes_no_byte(imported, workplace):
    assert run("export run --format huggingface --out back --json export.json") == 0
    for name in ("model.safetensors", "config.json"):
        assert (workplace / "back" / name).read_bytes() == (workplace / "theirs" / name).read_bytes()
    assert json.loads((workplace / "export.json").read_text())["format"] == "huggingface"
    assert run("export run --format timm --out timm") == 0
    assert run("import timm --out again") == 0
    assert run("export again --format huggingface --out back2") == 0
    tensors = [(workplace / folder / "model.safetensors").read_bytes() for folder in ("theirs", "back2")]
    assert tensors[0] == tensors[1]


def test_stablehlo_has_the_names_of_the_classes(imported, workplace):
    assert run("export run --format stablehlo --out model") == 0
    assert json.loads((workplace / "model.json").read_text())["class_names"] == list("0123456789")


def test_another_size_and_other_classes_are_said(workplace, capsys):
    assert run("import theirs --out run --image-size 16 12 --num-classes 3 --data.name tiny") == 0
    text = capsys.readouterr().out
    assert "interpolated from 2 x 2 to 4 x 3 patches" in text
    assert "drawn anew for 3 classes in place of 10" in text
    loaded = load_run("run")
    assert loaded.config.data.image_shape == (16, 12, 1)
    assert loaded.manifest["class_names"] == ["0", "1", "2"]


def test_a_data_set_decides_the_classes(workplace):
    assert run("import theirs --out run --data.name cifar100 --data.dir data") == 0
    config = load_run("run").config
    assert (config.data.num_classes, config.data.dir, config.data.val_size) == (100, "data", 5000)


def test_counters_of_a_cvt_come_back(compilation_cache, cvt_folder, edit_tensors, tmp_path, monkeypatch):
    from safetensors.numpy import load_file

    folder = cvt_folder()
    counters = [name for name in load_file(folder / "model.safetensors") if name.endswith("num_batches_tracked")]
    edit_tensors(folder, {name: np.asarray(n + 5, np.int64) for n, name in enumerate(counters)})
    monkeypatch.chdir(tmp_path)
    assert run("import theirs --out run --image-size 8 12") == 0
    assert run("export run --format huggingface --out back") == 0
    received, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("back", "theirs"))
    assert received.keys() == expected.keys()
    for name, tensor in expected.items():
        assert received[name].dtype == tensor.dtype
        assert received[name].tobytes() == tensor.tobytes(), name


BAD_IMPORTS = {
    "no file": "nothing.safetensors --out new",
    "a text file": "text.safetensors --out new",
    "no weights": "empty --out new",
    "a run in the way": "theirs --out run",
    "a file in the way": "theirs --out text.safetensors",
    "a full folder": "theirs --out theirs",
    "here": "theirs --out .",
    "below a file": "theirs --out text.safetensors/new",
    "heads": "theirs --out new --num-heads 3",
    "no heads": "theirs --out new --num-heads 0",
    "one class": "theirs --out new --num-classes 1",
    "size": "theirs --out new --image-size 9 8",
    "no size": "theirs --out new --image-size 0 8",
    "64 bits": "theirs --out new --dtype float64",
    "json is the config of the new run": "theirs --out new --json new/config.json",
    "json is in the new run": "theirs --out new --json new/deep/file.json",
    "json is the new run": "theirs --out new --json new",
    "json is the weights": "theirs/model.safetensors --out new --json theirs/model.safetensors",
    "json is beside the weights": "theirs/model.safetensors --out new --json theirs/preprocessor_config.json",
    "json is in the weights": "theirs --out new --json theirs/report.json",
    "json is of a run": "theirs --out new --json run/manifest.json",
}
BAD_EXPORTS = {
    "no run": "theirs --format timm --out new",
    "a folder in the way": "run --format timm --out theirs",
    "a file in the way": "run --format stablehlo --out image.png",
    "out is a file of the run": "run --format stablehlo --out run/summary.json",
    "out is in the checkpoints": "run --format timm --out run/checkpoints/new",
    "out is the run": "run --format timm --out run",
    "json is the model": "run --format stablehlo --out new --json new",
    "json is beside the model": "run --format stablehlo --out new --json new.json",
    "json is in the folder": "run --format timm --out new --json new/config.json",
    "json is of the run": "run --format timm --out new --json run/config.json",
    "json would be of the run": "run --format timm --out new --json run/summary.json",
    "json is in the checkpoints": "run --format timm --out new --json run/checkpoints/0/a.json",
    "an unknown format": "run --format onnx --out new",
    "no format": "run --out new",
    "no out": "run --format timm",
}


@pytest.mark.parametrize(
    "words",
    [*(f"import {words}" for words in BAD_IMPORTS.values()), *(f"export {words}" for words in BAD_EXPORTS.values())],
    ids=[*(f"import: {name}" for name in BAD_IMPORTS), *(f"export: {name}" for name in BAD_EXPORTS)],
)
def test_bad_words_get_one_sentence_and_change_nothing(imported, workplace, capsys, words):
    (workplace / "text.safetensors").write_text("some text")
    (workplace / "empty").mkdir()
    before = hash_tree(workplace)
    capsys.readouterr()
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert REMEDY.search(captured.err) or "required" in captured.err, captured.err
    assert hash_tree(workplace) == before


@pytest.mark.parametrize("command", ["import", "export"])
def test_help_and_refusals_of_words_do_not_import_jax(command):
    code = (
        "import sys; from ctt.cli.main import main\n"
        f"for words in (['{command}', '--help'], ['{command}', 'a', '--nothing']):\n"
        "    try: main(words)\n"
        "    except SystemExit: pass\n"
        "print('HEAVY', sorted({'jax', 'flax', 'torch', 'safetensors'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "HEAVY []"


def test_an_import_that_is_cut_short_leaves_no_run(workplace, monkeypatch):
    def fail(self, step, state, record):
        assert not (workplace / "run").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ctt.training.checkpoint.CheckpointStore.save", fail)
        assert run("import theirs --out run --data.name digits") == 130
    assert not (workplace / "run").exists()
    assert run("import theirs --out run --data.name digits") == 0
    assert load_run(workplace / "run").step == 0


def test_an_import_fills_an_empty_folder(workplace):
    (workplace / "run").mkdir()
    assert run("import theirs --out run --data.name digits") == 0
    assert sorted(path.name for path in workplace.iterdir() if path.name.startswith(".")) == []
    assert load_run(workplace / "run").step == 0
