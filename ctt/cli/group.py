"""What is printed of runs that differ by their seed."""

from collections.abc import Mapping
from typing import Any

from ctt.cli.table import print_table


def print_group(title: str, summary: Mapping[str, Any]) -> None:
    """Print a table of runs with their mean and standard deviation.

    Args:
        title: what the runs are of.
        summary: `seeds`, `runs` (each with its `seed`), `mean` and `std`.
    """
    names, runs = list(summary["mean"]), summary["runs"]
    rows = [[str(run["seed"]), *(format_measure(name, run.get(name)) for name in names)] for run in runs]
    rows += [
        [label, *(format_measure(name, summary[key][name]) for name in names)]
        for label, key in (("mean", "mean"), ("std (n - 1)", "std"))
    ]
    done = (
        f"{len(runs)} of {len(summary['seeds'])} seeds" if len(runs) < len(summary["seeds"]) else f"{len(runs)} seeds"
    )
    print_table(f"{title}, {done}", ["seed", *(name.replace("_", " ") for name in names)], rows, num_last=2)


def format_measure(name: str, value: float | None) -> str:
    """Return a measure as a reader wants it: accuracies in percent.

    Args:
        name: its name.
        value: the number, or None.

    Example:
        >>> format_measure("test_accuracy", 0.9125), format_measure("loss", None)
        ('91.25 %', '-')
    """
    if value is None:
        return "-"
    if name.endswith("accuracy"):
        return f"{value:.2%}".replace("%", " %")
    return f"{value:,.0f}" if name == "images_per_second" else f"{value:.4f}"
