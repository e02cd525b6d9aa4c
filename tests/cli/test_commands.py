"""What the commands print and write on good input."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_run import read_summary

import ctt
from ctt.cli.main import main
from ctt.data import load_dataset


def _values(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def digit(tmp_path_factory):
    """A digit of the test split as an image file, and its pixels."""
    pixels = load_dataset(ctt.load_config("configs/digits_vit.py").data).test.images[0]
    path = tmp_path_factory.mktemp("images") / "digit.png"
    Image.fromarray(pixels[..., 0]).save(path)
    return path, pixels


def test_train_writes_its_summary_and_its_folder_as_json(finished_run):
    written = _values(finished_run.with_name("train.json"))
    assert written == {**read_summary(finished_run), "run": str(finished_run)}


def test_eval_reproduces_the_test_accuracy_exactly(finished_run, tmp_path):
    assert main(["eval", str(finished_run), "--json", str(tmp_path / "eval.json")]) == 0
    assert _values(tmp_path / "eval.json")["accuracy"] == read_summary(finished_run)["test_accuracy"]


def test_eval_reproduces_the_val_loss_exactly(finished_run, tmp_path):
    assert main(["eval", str(finished_run), "--split", "val", "--json", str(tmp_path / "eval.json")]) == 0
    assert _values(tmp_path / "eval.json")["loss"] == read_summary(finished_run)["val_loss"]


@pytest.mark.parametrize(("split", "size"), [("train", 1257), ("val", 180), ("test", 360)])
def test_eval_measures_the_whole_split(finished_run, tmp_path, split, size):
    assert main(["eval", str(finished_run), "--split", split, "--json", str(tmp_path / "eval.json")]) == 0
    values = _values(tmp_path / "eval.json")
    assert (values["split"], values["num_examples"], values["step"]) == (split, size, 6)


def test_the_batch_of_an_evaluation_changes_no_accuracy(finished_run, tmp_path):
    assert main(["eval", str(finished_run), "--batch-size", "7", "--json", str(tmp_path / "eval.json")]) == 0
    assert _values(tmp_path / "eval.json")["accuracy"] == read_summary(finished_run)["test_accuracy"]


def test_eval_prints_what_it_writes(finished_run, tmp_path, capsys):
    main(["eval", str(finished_run), "--json", str(tmp_path / "eval.json")])
    printed, values = capsys.readouterr().out, _values(tmp_path / "eval.json")
    assert f"at step 6: test accuracy {values['accuracy']:.2%}, loss {values['loss']:.4f} (360 images" in printed


def test_eval_leaves_the_run_alone(finished_run):
    before = {path: path.stat().st_mtime_ns for path in finished_run.rglob("*")}
    main(["eval", str(finished_run)])
    assert {path: path.stat().st_mtime_ns for path in finished_run.rglob("*")} == before


def test_predict_gives_the_probabilities_of_the_model(finished_run, digit, tmp_path):
    path, pixels = digit
    words = ["predict", str(finished_run), str(path), "--top", "10", "--json", str(tmp_path / "predict.json")]
    assert main(words) == 0
    (prediction,) = _values(tmp_path / "predict.json")["predictions"]
    received = {entry["class"]: entry["probability"] for entry in prediction["classes"]}
    logits = np.asarray(ctt.load_run(finished_run).model(pixels[None]))[0].astype(np.float64)
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose([received[str(c)] for c in range(10)], expected, rtol=1e-5)


def test_predict_prints_the_likeliest_classes_first(finished_run, digit, tmp_path, capsys):
    words = ["predict", str(finished_run), str(digit[0]), "--top", "2", "--json", str(tmp_path / "predict.json")]
    assert main(words) == 0
    (prediction,) = _values(tmp_path / "predict.json")["predictions"]
    first, second = prediction["classes"]
    assert first["probability"] >= second["probability"]
    shown = f"{first['class']} {first['probability']:.1%}, {second['class']} {second['probability']:.1%}"
    assert capsys.readouterr().out.strip() == f"{digit[0]}: {shown}"


def test_predict_takes_several_images_of_any_size(finished_run, tmp_path, capsys):
    for name, size in (("a.png", (40, 30)), ("b.jpg", (5, 9))):
        Image.new("RGB", size, (200, 100, 0)).save(tmp_path / name)
    assert main(["predict", str(finished_run), str(tmp_path / "a.png"), str(tmp_path / "b.jpg")]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == 2


def test_train_prints_the_whole_hash_of_the_weights(finished_run, capsys, monkeypatch):
    from ctt.cli.train import _print_summary

    monkeypatch.setenv("COLUMNS", "80")
    _print_summary(ctt.load_run(finished_run).config, read_summary(finished_run), finished_run)
    assert read_summary(finished_run)["params_sha256"] in capsys.readouterr().out


@pytest.fixture(scope="module")
def prepared_dir(tmp_path_factory):
    """A small prepared data set with the name and the features of CIFAR-100."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
    from small_cifar100 import define_small_cifar100

    folder = tmp_path_factory.mktemp("tfds")
    define_small_cifar100()(data_dir=folder).download_and_prepare(file_format="array_record")
    return folder


@pytest.fixture(scope="module")
def cifar100_run(compilation_cache, config_file, prepared_dir, tmp_path_factory):
    """A run of two steps on the prepared set."""
    run = tmp_path_factory.mktemp("runs") / "cifar100"
    words = ["--data.name", "cifar100", "--data.dir", str(prepared_dir), "--data.val-size", "100"]
    words += ["--model.patch-size", "16", "--training.steps", "2"]
    assert main(["train", str(config_file), "--out", str(run), *words]) == 0
    return run


def test_a_prepared_data_set_is_trained_on(cifar100_run):
    assert read_summary(cifar100_run)["steps"] == 2


def test_a_run_on_a_prepared_data_set_knows_its_class_names(cifar100_run):
    assert len(_values(cifar100_run / "manifest.json")["class_names"]) == 100


def test_a_run_on_a_prepared_data_set_is_evaluated(cifar100_run, prepared_dir, tmp_path):
    words = ["eval", str(cifar100_run), "--data.dir", str(prepared_dir), "--json", str(tmp_path / "eval.json")]
    assert main(words) == 0
    values = _values(tmp_path / "eval.json")
    assert (values["accuracy"], values["is_training_data"]) == (read_summary(cifar100_run)["test_accuracy"], True)


def test_a_batch_of_evaluation_may_be_larger_than_the_split(finished_run, tmp_path):
    words = ["eval", str(finished_run), "--batch-size", "1000000000", "--json", str(tmp_path / "eval.json")]
    assert main(words) == 0
    assert _values(tmp_path / "eval.json")["num_examples"] == 360
