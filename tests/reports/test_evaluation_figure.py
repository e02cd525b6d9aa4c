"""The figure of an evaluation: what it shows, for few classes and for many."""

import re

import numpy as np
import pytest
from PIL import Image

from ctt.reports.evaluation_figure import build_figure, draw_evaluation
from ctt.training.evaluation.examples import describe_examples
from ctt.training.evaluation.measure import measure_examples


def measure(num_classes, num_examples=400):
    generator = np.random.default_rng(1)
    labels = generator.integers(0, num_classes, num_examples)
    logits = generator.normal(size=(num_examples, num_classes)) + 2 * np.eye(num_classes)[labels]
    return measure_examples(describe_examples(logits, labels), num_classes, num_bins=10)


def name(num_classes):
    return [f"kind{c}" for c in range(num_classes)]


@pytest.fixture(scope="module")
def few():
    return measure(4)


def test_the_cells_of_few_classes_hold_their_counts(few):
    confusion = build_figure(few, name(4), title="run").axes[0]
    shown = {tuple(map(int, text.get_position())): text.get_text() for text in confusion.texts}
    expected = {(j, i): str(n) for (i, j), n in np.ndenumerate(few.confusion) if n}
    assert shown == expected


def test_the_colours_are_shares_of_the_true_class(few):
    (image,) = build_figure(few, name(4), title="run").axes[0].images
    np.testing.assert_allclose(np.asarray(image.get_array()).sum(axis=1), 1)
    np.testing.assert_allclose(np.diagonal(image.get_array()), few.recall)


def test_the_axes_name_the_classes(few):
    confusion = build_figure(few, name(4), title="run").axes[0]
    for axis in (confusion.xaxis, confusion.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == name(4)


def test_the_bars_of_the_diagram_are_the_accuracies_of_the_filled_bins(few):
    diagram = next(axes for axes in build_figure(few, name(4), title="run").axes if axes.get_ylabel() == "accuracy")
    is_filled = few.reliability.count > 0
    assert not is_filled.all()
    np.testing.assert_allclose([bar.get_height() for bar in diagram.patches], few.reliability.accuracy[is_filled])
    assert f"{few.calibration_error:.4f}" in diagram.get_title(loc="right")


def test_many_classes_have_their_worst_confusions_named():
    measures, names = measure(30), name(30)
    texts = [text.get_text() for axes in build_figure(measures, names, title="run").axes for text in axes.texts]
    true, predicted, count = measures.worst_confusions(1)[0]
    assert f"{names[true]} \N{RIGHTWARDS ARROW} {names[predicted]}" in texts
    assert str(count) in texts
    assert count == max(n for (i, j), n in np.ndenumerate(measures.confusion) if i != j)


def test_an_undefined_calibration_is_said():
    measures = measure_examples(describe_examples(np.full((3, 2), np.nan), np.array([0, 1, 1])), 2)
    texts = [axes.get_title(loc="right") for axes in build_figure(measures, name(2), title="run").axes]
    assert any("undefined" in text for text in texts)


def test_a_png_has_the_size_of_the_figure(few, tmp_path):
    draw_evaluation(tmp_path / "new" / "a.png", few, name(4), title="run")
    width, height = build_figure(few, name(4), title="run").get_size_inches()
    assert Image.open(tmp_path / "new" / "a.png").size == pytest.approx((160 * width, 160 * height), abs=1)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.png"]


@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_the_suffix_says_the_kind_and_the_same_measures_are_the_same_bytes(few, tmp_path, suffix, begin):
    paths = [tmp_path / f"{letter}.{suffix}" for letter in "ab"]
    for path in paths:
        draw_evaluation(path, few, name(4), title="run")
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(begin)
    assert first == second


def test_no_trial_of_a_title_breaks_it(few, tmp_path):
    draw_evaluation(tmp_path / "a.svg", few, ["a$b", "<c>", "d_e", "\\frac{"], title="50% of $x & <y>")
    assert re.search("<svg", (tmp_path / "a.svg").read_text())
