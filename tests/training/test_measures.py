"""The measures of a split against scikit-learn and against their definitions, one example at a time."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    confusion_matrix,
    recall_score,
    top_k_accuracy_score,
)

from ctt.config import InputError
from ctt.config.serialize import strict_json
from ctt.training.evaluation.examples import describe_examples, join_examples
from ctt.training.evaluation.measure import choose_top_k, measure_examples

NUM_CLASSES = 7
NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def drawn():
    """Logits without ties `[300, 7]` that are right about half of the time, and labels."""
    generator = np.random.default_rng(5)
    labels = generator.integers(0, NUM_CLASSES, 300)
    logits = generator.normal(size=(300, NUM_CLASSES)) + 1.5 * np.eye(NUM_CLASSES)[labels]
    return logits.astype(np.float32), labels


def measure(logits, labels, **options):
    logits = np.asarray(logits, np.float32)
    return measure_examples(describe_examples(logits, np.asarray(labels)), logits.shape[1], **options)


def probabilities(logits):
    powers = np.exp(np.asarray(logits, np.float64))
    return powers / powers.sum(axis=1, keepdims=True)


def slow_calibration_error(logits, labels, num_bins):
    """Equation (3) of Guo et al., read from the page."""
    total, rows = 0.0, probabilities(logits)
    for m in range(1, num_bins + 1):
        inside = [i for i, p in enumerate(rows) if (m - 1) / num_bins < p.max() <= m / num_bins]
        if inside:
            accuracy = sum(rows[i].argmax() == labels[i] for i in inside) / len(inside)
            confidence = sum(rows[i].max() for i in inside) / len(inside)
            total += len(inside) / len(labels) * abs(accuracy - confidence)
    return total


@pytest.mark.parametrize("num_bins", [1, 2, 10, 15, 1000])
def test_the_calibration_error_is_its_definition(drawn, num_bins):
    received = measure(*drawn, num_bins=num_bins).calibration_error
    assert received == pytest.approx(slow_calibration_error(*drawn, num_bins), abs=1e-12)
    assert received > 0


@pytest.mark.parametrize("k", range(1, NUM_CLASSES))
def test_the_top_k_accuracy_is_that_of_scikit_learn(drawn, k):
    logits, labels = drawn
    expected = top_k_accuracy_score(labels, logits, k=k, labels=range(NUM_CLASSES))
    assert measure(*drawn, top_k=k).top_k_accuracy == pytest.approx(expected)


def test_the_label_is_always_among_all_classes(drawn):
    assert measure(*drawn, top_k=NUM_CLASSES).top_k_accuracy == 1


def test_the_brier_score_is_that_of_scikit_learn(drawn):
    logits, labels = drawn
    expected = brier_score_loss(labels, probabilities(logits), labels=range(NUM_CLASSES))
    assert measure(*drawn).brier_score == pytest.approx(expected, rel=1e-12)


def test_confusion_and_recall_are_those_of_scikit_learn(drawn):
    logits, labels = drawn
    predicted, measures = logits.argmax(axis=1), measure(*drawn)
    np.testing.assert_array_equal(measures.confusion, confusion_matrix(labels, predicted))
    np.testing.assert_allclose(measures.recall, recall_score(labels, predicted, average=None))
    np.testing.assert_array_equal(measures.support, np.bincount(labels))
    assert measures.confusion.trace() / len(labels) == accuracy_score(labels, predicted)


def test_rows_of_the_confusion_are_true_classes():
    measures = measure([[0.0, 5.0], [0.0, 4.0]], [0, 0])
    np.testing.assert_array_equal(measures.confusion, [[0, 2], [0, 0]])


def test_bins_hold_their_upper_border():
    measures = measure(np.log([[0.5, 0.5], [0.25, 0.75], [0.0625, 0.9375]]), [0, 1, 0], num_bins=4)
    np.testing.assert_array_equal(measures.reliability.count, [0, 1, 1, 1])
    np.testing.assert_allclose(measures.reliability.accuracy, [NAN, 1, 1, 0])
    np.testing.assert_allclose(measures.reliability.confidence, [NAN, 0.5, 0.75, 0.9375], rtol=1e-7)


def test_a_certain_model_that_is_always_right_is_calibrated():
    measures = measure(1e4 * np.eye(3), [0, 1, 2])
    assert (measures.calibration_error, measures.brier_score) == (0, 0)
    np.testing.assert_array_equal(measures.reliability.count, [0] * 14 + [3])


def test_a_certain_model_that_is_always_wrong_has_the_worst_scores():
    measures = measure(1e4 * np.eye(3), [1, 2, 0])
    assert (measures.calibration_error, measures.brier_score) == (1, 2)


def test_of_equal_logits_the_first_is_predicted_and_later_ones_rank_behind():
    logits = np.zeros((4, 4))
    examples = describe_examples(logits, np.arange(4))
    np.testing.assert_array_equal(examples.predicted, 0)
    np.testing.assert_array_equal(examples.rank, np.arange(4))
    assert [measure(logits, np.arange(4), top_k=k).top_k_accuracy for k in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1]


UNDEFINED = {
    "nan at the label": [NAN, 0.0, 1.0],
    "nan elsewhere": [5.0, NAN, 1.0],
    "an infinity": [INF, 0.0, 1.0],
    "all minus infinity": [-INF, -INF, -INF],
}


@pytest.mark.parametrize("row", UNDEFINED.values(), ids=UNDEFINED.keys())
def test_logits_without_a_softmax_are_never_right(row):
    measures = measure([row, [3.0, 0.0, 0.0]], [0, 0], top_k=3)
    assert (measures.num_undefined, measures.top_k_accuracy) == (1, 0.5)
    np.testing.assert_array_equal(measures.confusion, [[1, 0, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(measures.support, [2, 0, 0])
    assert measures.recall[0] == 0.5
    assert math.isnan(measures.calibration_error)
    assert math.isnan(measures.brier_score)


def test_nothing_but_undefined_logits_is_measured_without_a_failure():
    measures = measure([[NAN, NAN]] * 3, [0, 1, 1])
    assert measures.num_undefined == 3
    assert measures.confusion.sum() == 0
    json.loads(strict_json(measures.record(["a", "b"])))


def test_a_class_of_probability_zero_is_defined():
    measures = measure([[-INF, 0.0]], [1])
    assert (measures.num_undefined, measures.brier_score, measures.calibration_error) == (0, 0, 0)


def test_a_class_without_examples_has_no_accuracy():
    measures = measure([[1.0, 0.0, 0.0]], [0])
    np.testing.assert_array_equal(measures.recall, [1, NAN, NAN])
    classes = json.loads(strict_json(measures.record(["a", "b", "c"])))["classes"]
    assert classes[1] == {"name": "b", "count": 0, "accuracy": None}


def test_large_logits_do_not_overflow():
    measures = measure([[3e38, -3e38], [-3e38, 3e38]], [0, 0])
    assert (measures.num_undefined, measures.brier_score) == (0, 1)


@given(
    st.lists(st.lists(st.sampled_from([-INF, -1.0, 0.0, 1.0, 60.0, NAN, INF]), min_size=3, max_size=3), min_size=1),
    st.integers(1, 20),
)
def test_measures_stay_in_their_ranges_and_agree_with_each_other(rows, num_bins):
    labels = np.arange(len(rows)) % 3
    measures = measure(rows, labels, num_bins=num_bins, top_k=1)
    defined = len(rows) - measures.num_undefined
    assert measures.confusion.sum() == measures.reliability.count.sum() == defined
    assert measures.confusion.trace() / len(rows) == pytest.approx(measures.top_k_accuracy)
    right = np.nansum(measures.reliability.accuracy * measures.reliability.count)
    assert right == pytest.approx(measures.confusion.trace())
    if not measures.num_undefined:
        assert 0 <= measures.calibration_error <= 1
        assert 0 <= measures.brier_score <= 2


def test_the_measures_do_not_depend_on_how_the_examples_came(drawn):
    logits, labels = drawn
    whole = describe_examples(logits, labels)
    parts = join_examples([describe_examples(logits[i : i + 77], labels[i : i + 77]) for i in range(0, 300, 77)])
    received, expected = (strict_json(measure_examples(e, NUM_CLASSES).record("abcdefg")) for e in (parts, whole))
    assert received == expected


@pytest.mark.parametrize(("given_k", "num_classes", "expected"), [(None, 10, 5), (None, 5, 4), (None, 2, 1), (3, 3, 3)])
def test_the_usual_k_leaves_something_to_miss(given_k, num_classes, expected):
    assert choose_top_k(given_k, num_classes) == expected


@pytest.mark.parametrize("k", [0, -1, 11])
def test_a_k_beyond_the_classes_is_refused(k):
    with pytest.raises(InputError, match=rf"top_k.*\[1, 10\].*got {k}.*--top-k"):
        choose_top_k(k, 10)
