"""Learning curves, and the splitting error along the depth, from the lines of `metrics.jsonl`."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ctt.reports.style import BLUE, GREEN, ORANGE, PURPLE, QUIET, SPLITS, house_style, use_log_scale, use_whole_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines: TypeAlias = Sequence[dict[str, Any]]
_Series: TypeAlias = tuple[str, str, list[tuple[int, float]]]
"""A label, a colour and points."""

_NORMS = {"gradient_norm": ("gradient", BLUE), "update_norm": ("update", ORANGE), "parameter_norm": ("weights", GREEN)}
_METERS = {
    "lie_strang": ("Lie step against Strang step", "root mean square"),
    "free_estimate": ("Free estimate", "root mean square"),
    "commutator": ("Commutator", "root mean square"),
    "increment": ("Increment of a step", "share of the state"),
}
_SHADES = ("#a6cde8", "#08306b")
_MANY = 25  # With fewer points than this each one is marked.
_SIZE = (3.7, 2.5)


def plot_curves(lines: Lines, title: str) -> "Figure | None":
    """Return the learning curves of a run: a panel for each kind of measure that was logged, or None without any.

    Args:
        lines: lines of `metrics.jsonl`, with `step`, `split` and values.
        title: name of the run.
    """
    panels = [
        ("Loss", "cross-entropy [nats]", _splits_of(lines, "loss"), {}),
        ("Accuracy", "accuracy [%]", _splits_of(lines, "accuracy", factor=100), {}),
        (
            "Learning rate",
            "learning rate",
            _named(lines, {"learning_rate": ("learning rate", QUIET)}),
            {"from_zero": True},
        ),
        ("Norms", "Euclidean norm, all parameters", _named(lines, _NORMS), {"is_log": True}),
        ("Throughput", "images / s", _named(lines, {"images_per_second": ("throughput", PURPLE)}), {"from_zero": True}),
        (
            "Input stall",
            "share of the time [%]",
            _named(lines, {"input_stall": ("stall", PURPLE)}, factor=100),
            {"from_zero": True},
        ),
    ]
    panels = [panel for panel in panels if panel[2]]
    if not panels:
        return None
    from matplotlib.figure import Figure

    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with house_style():
        figure = Figure(figsize=(columns * _SIZE[0], rows * _SIZE[1] + 0.35), layout="constrained")
        figure.suptitle(title, x=0.008, ha="left", weight="bold", size=12)
        grid = figure.subplots(rows, columns, squeeze=False)
        last = max(step for panel in panels for _, _, points in panel[2] for step, _ in points)
        for axes, (name, unit, series, options) in zip(grid.flat, panels, strict=False):
            _plot(axes, name, unit, series, **options)
            axes.set_xlim(0, last * 1.02)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_axis_off()
    return figure


def plot_splitting(lines: Lines, title: str) -> "Figure | None":
    """Return the splitting error along the depth at each evaluation, or None if it was not logged.

    Args:
        lines: lines of `metrics.jsonl`; those of val may have `splitting`, by name one value a time step.
        title: name of the run.
    """
    measured = [line for line in lines if isinstance(line.get("splitting"), dict) and line["splitting"]]
    if not measured:
        return None
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    names = list(measured[0]["splitting"])
    texts = {name: _METERS[name] for name in _METERS if name in names}
    texts |= {name: _describe_meter(name) for name in names if name not in texts}
    columns = min(len(texts), 3)
    rows = -(-len(texts) // columns)
    steps = [line["step"] for line in measured]
    scale = Normalize(min(steps), max(steps) if max(steps) > min(steps) else min(steps) + 1)
    shades = LinearSegmentedColormap.from_list("depth", _SHADES)
    with house_style():
        figure = Figure(figsize=(columns * _SIZE[0] + 0.7, rows * _SIZE[1] + 0.35), layout="constrained")
        figure.suptitle(f"{title}: splitting along the depth, on val", x=0.008, ha="left", weight="bold", size=12)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, (name, (text, unit)) in zip(grid.flat, texts.items(), strict=False):
            smallest = math.inf
            for line in measured:
                points = _points(enumerate(line["splitting"].get(name) or [], start=1))
                smallest = min([smallest, *(value for _, value in points)])
                axes.plot(*_unzip(points), "-o", ms=3, color=shades(scale(line["step"])))
            if 0 < smallest < math.inf:
                use_log_scale(axes)
            axes.set_title(text)
            axes.set_xlabel("time step of the network")
            axes.set_ylabel(unit)
            use_whole_steps(axes)
        for axes in list(grid.flat)[len(texts) :]:
            axes.set_axis_off()
        if len(measured) > 1:
            bar = figure.colorbar(ScalarMappable(scale, shades), ax=list(grid.flat), pad=0.015, aspect=35)
            bar.set_label("optimiser step", color=QUIET)
    return figure


def _describe_meter(name: str) -> tuple[str, str]:
    if name.startswith("lipschitz_"):
        return f"Lipschitz constant of {name.removeprefix('lipschitz_')}", "lower bound [1 / time]"
    return name.replace("_", " "), ""


def _plot(
    axes: "Axes", name: str, unit: str, series: list[_Series], *, is_log: bool = False, from_zero: bool = False
) -> None:
    for label, color, points in series:
        steps, values = _unzip(points)
        if label == "test":
            axes.plot(steps, values, "D", ms=5, color=color, label=label, zorder=3)
        else:
            axes.plot(steps, values, "-o" if len(points) < _MANY else "-", color=color, label=label)
    axes.set_title(name)
    axes.set_xlabel("optimiser step")
    axes.set_ylabel(unit)
    if is_log and all(value > 0 for _, _, points in series for _, value in points):
        use_log_scale(axes)
    if from_zero:
        axes.set_ylim(bottom=0)
    if len(series) > 1:
        place = {"loc": "lower right", "bbox_to_anchor": (1.02, 0.99)}  # Beside the title, where no curve is.
        axes.legend(ncols=len(series), handlelength=1.2, columnspacing=1.0, borderaxespad=0.2, **place)
    use_whole_steps(axes)


def _splits_of(lines: Lines, key: str, *, factor: float = 1.0) -> list[_Series]:
    """Return the points of a measure, split by split."""
    series = [
        (split, color, _points(((line["step"], line.get(key)) for line in lines if line["split"] == split), factor))
        for split, color in SPLITS.items()
    ]
    return [one for one in series if one[2]]


def _named(lines: Lines, names: dict[str, tuple[str, str]], *, factor: float = 1.0) -> list[_Series]:
    """Return the points of several measures of training."""
    series = [
        (label, color, _points(((line["step"], line.get(key)) for line in lines if line["split"] == "train"), factor))
        for key, (label, color) in names.items()
    ]
    return [one for one in series if one[2]]


def _points(pairs: Iterable[tuple[int, Any]], factor: float = 1.0) -> list[tuple[int, float]]:
    """Return the pairs whose value is a finite number, in order of their steps."""
    return sorted(
        (step, factor * value)
        for step, value in pairs
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )


def _unzip(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [value for _, value in points]
