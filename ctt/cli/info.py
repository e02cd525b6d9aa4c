"""Show what a config is, without running it: parameters, substeps, FLOPs, memory.

  ctt info configs/cifar10_vit.py --splitting.scheme strang
Or, with its data, what its first training batch looks like after augmentation:
  ctt info configs/cifar10_vit.py --data.dir DIR --figure batch.png
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctt.cli.apart import check_apart
from ctt.cli.command import CommonArguments, ConfigFile, FlatConfig, default_config, parse, print_values, write_json
from ctt.cli.picture import check_figure
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config


@dataclass(frozen=True, kw_only=True)
class InfoArguments(CommonArguments):
    """Arguments of ``ctt info``."""

    config_file: ConfigFile = None
    """Config file."""
    figure: Path | None = None
    """Also draw the first training batch, before and after augmentation, to this file: .png, .svg or .pdf."""
    config: FlatConfig = field(default_factory=Config)


def run(words: list[str]) -> int:
    """Print the footprint of a config.

    Args:
        words: the words after ``ctt info``.

    Returns:
        The exit status.
    """
    default = InfoArguments(config=default_config(words, command="info"))
    arguments = parse(InfoArguments, words, default=default, command="info", description=__doc__)
    config = resolve_config(arguments.config)
    check_figure("--figure", arguments.figure)
    check_apart("--figure", arguments.figure, made=tuple(p for p in (arguments.json, arguments.config_file) if p))

    from flax import nnx

    from ctt.models.build import build_model
    from ctt.reports.footprint import measure_footprint

    nnx.eval_shape(lambda: build_model(config))  # What the model refuses is said at once.
    print("Compiling one update, to see its memory; nothing is run.", file=sys.stderr)
    footprint = measure_footprint(config)
    _print_footprint(config, footprint)
    if arguments.figure is not None:
        _draw(config, arguments.figure)
        footprint["figure"] = str(arguments.figure)
    write_json(arguments.json, footprint)
    return 0


def _draw(config: Config, path: Path) -> None:
    """Draw the first training batch of a config."""
    from ctt.reports.batch import draw_batch, plot_batch
    from ctt.reports.style import save_figure
    from ctt.training.loading import load_with_progress
    from ctt.training.progress import build_reporter

    dataset = load_with_progress(config, build_reporter())
    save_figure(plot_batch(config, draw_batch(config, dataset)), path)
    print(f"The first training batch, before and after augmentation: {path}")


_LABELS = {"forward_flops": "forward flops (one image)", "update_flops": "update flops (one batch)"}


def _print_footprint(config: Config, footprint: dict[str, Any]) -> None:
    rows = {}
    for key, value in footprint.items():
        if isinstance(value, dict):
            rows |= {f"  {name}": _format(key, part) for name, part in value.items()}
        else:
            rows[_LABELS.get(key, key.replace("_", " "))] = _format(key, value)
    print_values(str(config.name), rows)


def _format(key: str, value: Any) -> str:
    if key.endswith("bytes"):
        return f"{value / 2**20:,.1f} MiB"
    if key.endswith("flops"):
        return f"{value / 1e9:,.3f} GFLOP" if value >= 1e9 else f"{value / 1e6:,.3f} MFLOP"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
