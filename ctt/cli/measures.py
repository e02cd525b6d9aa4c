"""What ``ctt eval`` prints of the measures of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctt.cli.command import print_values
from ctt.cli.table import print_table
from ctt.config.schema import Config

if TYPE_CHECKING:
    from ctt.training.evaluate import Evaluation
    from ctt.training.evaluation.measure import Measures

MANY_CLASSES = 20
"""Above so many classes only the worst of them, and the most frequent confusions, are printed."""

_NUM_WORST = 10


def describe_result(config: Config, result: "Evaluation") -> str:
    """Return how the equation was integrated, in words.

    Args:
        config: the config that the run was evaluated by.
        result: its measures.
    """
    from ctt.training.evaluation.classify import AdaptiveEvaluation

    splitting = config.splitting
    scheme = f"{splitting.scheme} + {splitting.substep_text}"
    if isinstance(result, AdaptiveEvaluation):
        return (
            f"{scheme}, adaptive steps an image: {result.mean_steps:.1f} on average "
            f"({result.min_steps} to {result.max_steps}), {result.mean_rejected:.1f} more rejected"
        )
    return f"{scheme}, {splitting.steps} steps to t = {splitting.horizon:g}"


def print_measures(measures: "Measures", class_names: Sequence[str]) -> None:
    """Print the measures: all classes where they are few, else the worst.

    Args:
        measures: the measures.
        class_names: a name a class.
    """
    num_bins = len(measures.reliability.count)
    print_values(
        "Measures",
        {
            f"top-{measures.top_k} accuracy": f"{measures.top_k_accuracy:.2%}",
            f"expected calibration error ({num_bins} bins)": f"{measures.calibration_error:.4f}",
            "Brier score (0 to 2)": f"{measures.brier_score:.4f}",
        },
    )
    _print_reliability(measures)
    _print_classes(measures, class_names)
    if len(class_names) <= MANY_CLASSES:
        _print_confusion(measures, class_names)
    else:
        _print_worst_confusions(measures, class_names)


def _print_reliability(measures: "Measures") -> None:
    table = measures.reliability
    rows = [
        [
            f"{table.edges[m]:.3g} to {table.edges[m + 1]:.3g}",
            f"{count:,}",
            f"{table.confidence[m]:.2%}",
            f"{table.accuracy[m]:.2%}",
            f"{table.accuracy[m] - table.confidence[m]:+.2%}",
        ]
        for m, count in enumerate(table.count)
        if count
    ]
    title = "Reliability (bins of confidence; empty ones left out)"
    print_table(title, ["confidence", "images", "mean confidence", "accuracy", "difference"], rows)


def _print_classes(measures: "Measures", class_names: Sequence[str]) -> None:
    chosen = [c for c in range(len(class_names)) if measures.support[c]]
    title = "Accuracy by class"
    if len(class_names) > MANY_CLASSES:
        chosen = sorted(chosen, key=lambda c: measures.recall[c])[:_NUM_WORST]
        title = f"The {len(chosen)} classes of lowest accuracy, of {len(class_names)}"
    rows = [[class_names[c], f"{measures.support[c]:,}", f"{measures.recall[c]:.2%}"] for c in chosen]
    print_table(title, ["class", "images", "accuracy"], rows)


def _print_confusion(measures: "Measures", class_names: Sequence[str]) -> None:
    rows = [
        [name, *(f"{count:,}" if count else "." for count in row)]
        for name, row in zip(class_names, measures.confusion.tolist(), strict=True)
    ]
    print_table("Confusion (rows: true class, columns: predicted class)", ["true", *class_names], rows)


def _print_worst_confusions(measures: "Measures", class_names: Sequence[str]) -> None:
    rows = [
        [class_names[true], class_names[predicted], f"{count:,}", f"{count / measures.support[true]:.2%}"]
        for true, predicted, count in measures.worst_confusions(_NUM_WORST)
    ]
    header = ["true", "predicted", "images", "share of the true class"]
    print_table(f"The {len(rows)} most frequent confusions", header, rows)
