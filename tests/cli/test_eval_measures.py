"""The measures that `ctt eval` writes, prints and draws are those of the model that it names."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

import ctt
from ctt.cli.main import main
from ctt.data import load_dataset
from ctt.training.evaluate import build_evaluator, split_model
from ctt.training.evaluation.classify import build_classifier
from ctt.training.run import discretise_anew

CHANGED = {
    "as trained": {},
    "finer": {"steps": 8},
    "another scheme": {"scheme": "strang", "substep": "midpoint", "steps": 4},
}


@pytest.fixture(scope="module")
def trained(finished_run):
    return ctt.load_run(finished_run)


@pytest.fixture(scope="module")
def test_split(trained):
    return load_dataset(trained.config.data).test


@pytest.fixture(scope="module")
def evaluate(finished_run, tmp_path_factory):
    """Evaluate the tiny run with more words, once for each set of words."""
    values = {}

    def call(*words):
        if words not in values:
            path = tmp_path_factory.mktemp("values") / "eval.json"
            assert main(["eval", str(finished_run), *words, "--json", str(path)]) == 0
            values[words] = json.loads(path.read_text())
        return values[words]

    return call


def probabilities(logits):
    powers = np.exp(np.asarray(logits, np.float64))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("changes", CHANGED.values(), ids=CHANGED.keys())
def test_the_measures_are_those_of_the_depth_that_is_asked_for(trained, test_split, evaluate, changes):
    values = evaluate(*[word for name, value in changes.items() for word in (f"--splitting.{name}", str(value))])
    _, model = discretise_anew(trained, changes)
    p, labels = probabilities(model(test_split.images)), test_split.labels
    predicted = p.argmax(axis=1)
    np.testing.assert_array_equal(values["confusion"], confusion_matrix(labels, predicted, labels=range(10)))
    assert values["brier_score"] == pytest.approx(np.sum((p - np.eye(10)[labels]) ** 2, axis=1).mean(), rel=1e-5)
    top = np.mean([label in row.argsort()[-5:] for row, label in zip(p, labels, strict=True)])
    assert (values["top_k"], values["top_k_accuracy"]) == (5, pytest.approx(top))
    assert values["accuracy"] == pytest.approx(np.mean(predicted == labels))


def test_another_depth_is_measured_otherwise(evaluate):
    assert evaluate()["brier_score"] != evaluate("--splitting.steps", "8")["brier_score"]


def test_adaptive_steps_have_the_measures_of_a_fine_grid(evaluate):
    fine = ("--splitting.scheme", "strang", "--splitting.substep", "midpoint", "--splitting.steps", "32")
    adaptive = evaluate("--splitting.adaptive", "--splitting.rtol", "1e-4")
    assert adaptive["brier_score"] == pytest.approx(evaluate(*fine)["brier_score"], abs=1e-3)
    assert np.trace(adaptive["confusion"]) / 360 == pytest.approx(adaptive["accuracy"])
    assert adaptive["brier_score"] != evaluate()["brier_score"]


def test_the_loss_of_the_full_measures_is_that_of_the_loop_to_the_bit(trained, test_split):
    (_, weights, _), size = split_model(trained.model), 100
    cheap = build_evaluator(trained.model, size)(weights, test_split)
    full, examples = build_classifier(trained.model, size)(weights, test_split)
    assert dataclasses.asdict(full) == dataclasses.asdict(cheap)
    assert np.mean(examples.predicted == examples.labels) == pytest.approx(cheap.accuracy)


@pytest.mark.parametrize("size", [7, 1000])
def test_padding_is_not_counted(evaluate, size):
    values, whole = evaluate("--batch-size", str(size)), evaluate()
    assert np.sum(values["confusion"]) == sum(row["count"] for row in values["reliability"]) == 360
    for name in ("confusion", "classes", "num_undefined", "top_k_accuracy"):
        assert values[name] == whole[name]
    assert values["brier_score"] == pytest.approx(whole["brier_score"], rel=1e-6)


def test_weights_of_nan_are_never_right(trained, test_split):
    _, weights, _ = split_model(trained.model)
    broken = jax.tree.map(lambda leaf: leaf * np.nan, weights)
    result, examples = build_classifier(trained.model, 100)(broken, test_split)
    assert (result.accuracy, np.isnan(result.loss)) == (0, True)
    assert build_evaluator(trained.model, 100)(broken, test_split).accuracy == 0
    assert not examples.is_defined.any()


def test_classes_carry_the_names_of_the_manifest(evaluate, trained):
    assert [entry["name"] for entry in evaluate()["classes"]] == trained.manifest["class_names"]


def test_what_is_printed_is_what_is_written(evaluate, capsys):
    values, printed = evaluate("--top-k", "3", "--bins", "4"), capsys.readouterr().out
    assert f"top-3 accuracy: {values['top_k_accuracy']:.2%}" in printed
    assert f"expected calibration error (4 bins): {values['calibration_error']:.4f}" in printed
    assert f"Brier score (0 to 2): {values['brier_score']:.4f}" in printed
    assert len(values["reliability"]) == 4
    lines = [line.split() for line in printed.splitlines()]
    for name, row in zip("0123456789", values["confusion"], strict=True):
        assert [name, *("." if n == 0 else str(n) for n in row)] in lines


def test_a_figure_is_drawn(evaluate, tmp_path, capsys):
    evaluate("--figure", str(tmp_path / "figures" / "eval.svg"))
    text = (tmp_path / "figures" / "eval.svg").read_text()
    assert text.startswith("<?xml")
    assert str(tmp_path / "figures" / "eval.svg") in capsys.readouterr().out


REFUSED = {
    "no class": ("--top-k 0", ["top_k", "[1, 10]", "got 0"]),
    "more than all classes": ("--top-k 11", ["top_k", "[1, 10]", "got 11"]),
    "no bins": ("--bins 0", ["bins", "got 0"]),
    "a figure of unknown kind": ("--figure a.bmp", ["--figure", ".png, .svg, .pdf", "a.bmp"]),
    "a figure without a suffix": ("--figure png", ["--figure", ".png"]),
    "a figure below a file": ("--figure {run}/config.json/a.png", ["--figure", "apart"]),
    "a figure below another file": ("--figure {file}/a.png", ["--figure", "can be written"]),
    "a figure where the json goes": ("--json a.png --figure a.png", ["--figure", "apart"]),
    "a figure among the checkpoints": ("--figure {run}/checkpoints/a.png", ["--figure", "apart"]),
}


@pytest.mark.parametrize(("words", "fragments"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_measured_or_drawn_is_refused_before_the_work(
    finished_run, capsys, monkeypatch, tmp_path, words, fragments
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr("ctt.training.loading.load_dataset", lambda *_: pytest.fail("the data were read"))
    words = words.format(run=finished_run, file=tmp_path / "file").split()
    assert main(["eval", str(finished_run), *words]) == 2
    message = capsys.readouterr().err.strip()
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
