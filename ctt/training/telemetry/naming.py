"""Names of measures where curves are drawn."""

from collections.abc import Mapping
from typing import Any


def flatten_measures(split: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among the measures by a path of names, for places that draw curves.

    Args:
        split: first part of every name.
        values: measures by name: numbers, lists of numbers, and dictionaries of these; others are left out.

    Example:
        >>> flatten_measures("val", {"loss": 0.5, "splitting": {"stage_1": [0.1, 0.2]}})
        {'val/loss': 0.5, 'val/splitting/stage_1/0': 0.1, 'val/splitting/stage_1/1': 0.2}
    """
    flat: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten_measures(f"{split}/{name}", value)
        elif isinstance(value, list | tuple):
            flat |= flatten_measures(f"{split}/{name}", {str(i): item for i, item in enumerate(value)})
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[f"{split}/{name}"] = float(value)
    return flat
