"""The confusion matrix and the reliability diagram of a run, as one figure."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import PercentFormatter

from ctt.training.evaluation.measure import Measures

_INK, _FAINT, _PALE, _BLUE, _RED = "#1f2933", "#9aa5b1", "#9cc4e8", "#08519c", "#d1495b"

_FEW = 20
"""Up to so many classes the cells of the confusion matrix hold their numbers."""

_NUM_WORST, _TO = 18, "\N{RIGHTWARDS ARROW}"

_NAMED = 120
"""Up to so many classes the axes of the confusion matrix name them."""


def draw_evaluation(path: str | Path, measures: Measures, class_names: Sequence[str], *, title: str) -> None:
    """Draw the confusion matrix and the reliability diagram (Guo et al. 2017, figure 1), whole or not at all.

    Args:
        path: the file; its suffix (.png, .svg, .pdf) says of which kind.
        measures: what is drawn.
        class_names: a name a class.
        title: what it is of.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    kind = path.suffix[1:].lower()
    # No date and no random names in the file: the same measures are the same bytes.
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with rc_context({"svg.hashsalt": "ctt"}):
        build_figure(measures, class_names, title=title).savefig(partial, format=kind, dpi=160, metadata=metadata)
    os.replace(partial, path)


def build_figure(measures: Measures, class_names: Sequence[str], *, title: str) -> Figure:
    """Return the figure that `draw_evaluation` writes.

    Args:
        measures: what is drawn.
        class_names: a name a class.
        title: what it is of.
    """
    num_classes = len(class_names)
    is_many = num_classes > _FEW
    side = float(np.clip(0.11 * num_classes, 9.0, 12.0) if is_many else np.clip(0.36 * num_classes, 5.2, 7.2))  # [in]
    figure = Figure(figsize=(side + 5.6, side + 0.9), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
    figure.suptitle(title, color=_INK, fontsize=13, fontweight="bold", x=0.012, ha="left")
    columns = figure.add_gridspec(1, 2, width_ratios=[side + 0.8, 4.4])
    _draw_confusion(figure, figure.add_subplot(columns[0]), measures, class_names)
    # The diagram keeps its size beside a large matrix, and the worst of it is named below.
    heights = [3.4, 1.1, side - 5.0] if is_many else [3.4, 1.1]
    rows = columns[1].subgridspec(len(heights), 1, height_ratios=heights, hspace=0.04)
    diagram = figure.add_subplot(rows[0])
    _draw_reliability(diagram, measures)
    _draw_counts(figure.add_subplot(rows[1], sharex=diagram), measures)
    if is_many:
        _draw_worst(figure.add_subplot(rows[2]), measures, class_names)
    return figure


def _draw_confusion(figure: Figure, axes: Axes, measures: Measures, class_names: Sequence[str]) -> None:
    num_classes = len(class_names)
    with np.errstate(invalid="ignore"):
        shares = measures.confusion / measures.support[:, None]
    # A power below 1: rare confusions must be seen beside the diagonal.
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="none")
    axes.set_xlabel("predicted class", color=_INK)
    axes.set_ylabel("true class", color=_INK)
    axes.set_title("Confusion", loc="left", color=_INK, fontsize=11)
    if num_classes <= _NAMED:
        is_short = num_classes <= _FEW and max(map(len, class_names)) <= 3
        rotation = 0 if is_short else 45 if num_classes <= _FEW else 90
        size = float(np.clip(420 / num_classes, 4.2, 9))
        axes.set_xticks(range(num_classes), class_names, fontsize=size, rotation=rotation)
        axes.set_yticks(range(num_classes), class_names, fontsize=size)
        if rotation == 45:
            for label in axes.get_xticklabels():
                label.set(ha="right", rotation_mode="anchor")
    axes.tick_params(length=0, colors=_INK)
    axes.spines[:].set_visible(False)
    if num_classes <= _FEW:
        axes.set_xticks(np.arange(num_classes + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(num_classes + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.2)
        axes.tick_params(which="minor", length=0)
        for (row, column), count in np.ndenumerate(measures.confusion):
            if count:
                color = "white" if shares[row, column] > 0.35 else _INK
                axes.text(
                    column,
                    row,
                    f"{count:,}",
                    ha="center",
                    va="center",
                    color=color,
                    fontsize=7.5 if num_classes > 10 else 9,
                )
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.015, format=PercentFormatter(1.0, decimals=0))
    bar.set_label("share of the true class", color=_INK, fontsize=8)
    bar.set_ticks([0, 0.01, 0.05, 0.1, 0.25, 0.5, 1])
    bar.ax.tick_params(length=0, labelsize=7.5, colors=_INK)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _draw_reliability(axes: Axes, measures: Measures) -> None:
    table = measures.reliability
    is_filled = table.count > 0
    left, width = table.edges[:-1][is_filled], np.diff(table.edges)[is_filled]
    accuracy, confidence = table.accuracy[is_filled], table.confidence[is_filled]
    bars = axes.bar(left, accuracy, width, align="edge", color=_PALE, edgecolor="white", linewidth=0.8)
    gaps = axes.vlines(confidence, accuracy, confidence, color=_RED, linewidth=2)
    axes.plot(confidence, accuracy, "o", color=_BLUE, markersize=4.5, markeredgecolor="white", clip_on=False, zorder=3)
    (ideal,) = axes.plot([0, 1], [0, 1], color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_ylabel("accuracy", color=_INK)
    axes.set_title("Reliability", loc="left", color=_INK, fontsize=11)
    error = "undefined" if np.isnan(measures.calibration_error) else f"{measures.calibration_error:.4f}"
    axes.set_title(f"ECE {error}   Brier {measures.brier_score:.4f}", loc="right", color=_INK, fontsize=9)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.tick_params(labelbottom=False, length=0, colors=_INK, labelsize=8)
    _clean(axes)
    labels = ("accuracy", "gap to the mean confidence", "perfect calibration")
    axes.legend(
        (bars, gaps, ideal),
        labels,
        loc="upper left",
        frameon=True,
        framealpha=0.85,
        edgecolor="none",
        fontsize=8,
        labelcolor=_INK,
    )


def _draw_counts(axes: Axes, measures: Measures) -> None:
    table = measures.reliability
    share = table.count / max(int(np.sum(table.count)), 1)
    axes.bar(
        table.edges[:-1], share, np.diff(table.edges), align="edge", color=_FAINT, edgecolor="white", linewidth=0.8
    )
    axes.set_xlabel("confidence", color=_INK)
    axes.set_ylabel("images", color=_INK)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.tick_params(length=0, colors=_INK, labelsize=8)
    _clean(axes)


def _draw_worst(axes: Axes, measures: Measures, class_names: Sequence[str]) -> None:
    worst = measures.worst_confusions(_NUM_WORST)
    counts = [count for _, _, count in worst]
    axes.barh(range(len(worst)), counts, color=_PALE, height=0.78)
    style: dict[str, Any] = {"va": "center", "color": _INK, "fontsize": 7.5, "textcoords": "offset points"}
    # The names stand on the bars, since beside them they would take the width of the diagram above.
    for place, (true, predicted, count) in enumerate(worst):
        axes.annotate(f"{class_names[true]} {_TO} {class_names[predicted]}", (0, place), (5, 0), **style)
        axes.annotate(f"{count:,}", (1.12 * max(counts), place), (0, 0), ha="right", **style)
    axes.set_xlim(0, 1.12 * max(counts, default=1))
    axes.set_title(f"Worst confusions: true {_TO} predicted", loc="left", color=_INK, fontsize=11)
    axes.set_ylim(_NUM_WORST - 0.5, -0.5)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _clean(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(color="#e4e7eb", linewidth=0.7)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
