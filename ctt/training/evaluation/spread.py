"""Mean and standard deviation over runs that differ by their seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def measure_spread(
    runs: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the mean and the sample standard deviation (of n - 1) of some measures over runs.

    Args:
        runs: the values of each run.
        names: the measures; a run without one, or with no number there, makes both None.

    Returns:
        The means, and the deviations, which are None for fewer than two runs.

    Example:
        >>> measure_spread([{"loss": 1.0}, {"loss": 3.0}], ["loss"])
        ({'loss': 2.0}, {'loss': 1.4142135623730951})
    """
    means: dict[str, float | None] = {}
    deviations: dict[str, float | None] = {}
    for name in names:
        values = [run.get(name) for run in runs]
        is_whole = bool(values) and all(isinstance(value, int | float) for value in values)
        means[name] = float(np.mean(np.array(values, np.float64))) if is_whole else None
        deviations[name] = float(np.std(np.array(values, np.float64), ddof=1)) if is_whole and len(runs) > 1 else None
    return means, deviations
