"""Learning curves and the splitting meter: from whatever the lines of metrics hold."""

import pytest

from ctt.reports.curves import plot_curves, plot_splitting
from ctt.reports.style import SPLITS, save_figure

TRAIN = {"split": "train", "loss": 2.0, "accuracy": 0.25, "learning_rate": 1e-3, "gradient_norm": 0.5}
METER = {"lie_strang": [0.1, 0.2], "commutator": [0.3, 0.0], "lipschitz_attention": [1.0, 2.0]}


def train_lines(count=3, **values):
    return [{**TRAIN, "step": 10 * (n + 1), **values} for n in range(count)]


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]


def points(figure, title):
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == title)
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def test_without_lines_there_is_no_figure():
    assert plot_curves([], "run") is None
    assert plot_splitting(train_lines(), "run") is None


def test_a_panel_for_each_kind_of_measure_that_was_logged():
    assert titles(plot_curves(train_lines(), "run")) == ["Loss", "Accuracy", "Learning rate", "Norms"]
    more = train_lines(images_per_second=100.0, input_stall=0.01, update_norm=0.1, parameter_norm=9.0)
    figure = plot_curves(more, "run")
    assert titles(figure)[-2:] == ["Throughput", "Input stall"]
    assert set(points(figure, "Norms")) == {"gradient", "update", "weights"}


def test_each_split_has_its_points_in_per_cent():
    lines = [
        *train_lines(),
        {"step": 20, "split": "val", "loss": 1.5, "accuracy": 0.5},
        {"step": 30, "split": "test", "loss": 1.25, "accuracy": 0.75},
    ]
    figure = plot_curves(lines, "run")
    assert points(figure, "Accuracy") == {
        "train": ([10, 20, 30], [25.0] * 3),
        "val": ([20], [50.0]),
        "test": ([30], [75.0]),
    }
    assert points(figure, "Loss")["val"] == ([20], [1.5])
    assert len(set(SPLITS.values())) == 3


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "text", True])
def test_what_is_no_number_is_left_out(value):
    lines = [*train_lines(2), {**TRAIN, "step": 30, "loss": value}]
    assert points(plot_curves(lines, "run"), "Loss")["train"] == ([10, 20], [2.0, 2.0])


def test_the_splitting_error_has_a_line_an_evaluation(tmp_path):
    lines = [{"step": step, "split": "val", "loss": 1.0, "accuracy": 0.5, "splitting": METER} for step in (3, 6)]
    figure = plot_splitting(lines, "run")
    assert titles(figure) == ["Lie step against Strang step", "Commutator", "Lipschitz constant of attention"]
    scales = [axes.get_yscale() for axes in figure.axes[:3]]
    assert scales == ["log", "linear", "log"]  # A zero has no logarithm.
    assert [len(axes.get_lines()) for axes in figure.axes[:3]] == [2, 2, 2]
    save_figure(figure, tmp_path / "splitting.svg")


@pytest.mark.parametrize("title", ["$x_{", "a_b^c", "<&>"])
def test_a_name_is_never_read_as_a_formula(title, tmp_path):
    save_figure(plot_curves(train_lines(1), title), tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").stat().st_size > 1000
