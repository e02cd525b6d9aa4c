"""A report of a run: figures and one page, from what its directory holds."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctt.config.schema import Config
from ctt.config.serialize import flatten_config
from ctt.data.dataset import Dataset
from ctt.reports.batch import draw_batch, plot_batch
from ctt.reports.curves import plot_curves, plot_splitting
from ctt.reports.page import Page, write_page
from ctt.reports.style import save_figure
from ctt.training.directory import RunDirectory, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_report(
    run: str | Path, out: str | Path, dataset: Dataset | None, *, notes: Sequence[str] = ()
) -> tuple[list[Path], list[str]]:
    """Write the figures and the page of a run, whether or not it is finished.

    Args:
        run: a run directory; it is only read.
        out: where ``figures/`` and ``report.html`` are put.
        dataset: the data of the run, for the figure of its first batch; None: there is none.
        notes: sentences for the page, to which those about missing figures are added.

    Returns:
        The files that were written, and the sentences about what is missing.

    Raises:
        InputError: the folder is no run directory, or one of its files cannot be read.
    """
    directory, out = RunDirectory(run), Path(out)
    config, lines = directory.read_config(), directory.read_metrics()
    title = str(config.name)
    drawings: dict[str, tuple[str, Callable[[], Figure | None]]] = {
        "curves.svg": ("Learning curves", lambda: plot_curves(lines, title)),
        "splitting.svg": ("Splitting error along the depth", lambda: plot_splitting(lines, title)),
        "batch.png": (
            "The first training batch, before and after augmentation",
            lambda: plot_batch(config, draw_batch(config, dataset)) if dataset is not None else None,
        ),
    }
    files: list[Path] = []
    pictures: dict[str, tuple[bytes, str]] = {}
    for name, (text, draw) in drawings.items():
        figure, path = draw(), out / "figures" / name
        if figure is None:
            path.unlink(missing_ok=True)  # Of an earlier report, which is no longer true.
            continue
        save_figure(figure, path)
        pictures[text] = (path.read_bytes(), path.suffix[1:])
        files.append(path)
    notes = list(notes)
    if not lines:
        notes = [*notes, "There are no learning curves: the run has logged no measures."]
    page = out / "report.html"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(page, write_page(describe_run(directory, config, lines, pictures, notes)))
    return [*files, page], notes


def describe_run(
    directory: RunDirectory,
    config: Config,
    lines: list[dict[str, Any]],
    pictures: dict[str, tuple[bytes, str]],
    notes: list[str],
) -> Page:
    """Return what the page of a run says.

    Args:
        directory: the run.
        config: its config.
        lines: its metrics.
        pictures: figures by description, each the bytes of a file and its suffix.
        notes: sentences about what is missing.
    """
    manifest = directory.read_manifest() if (directory.path / "manifest.json").exists() else {}
    has_summary = (directory.path / "summary.json").exists()
    summary = directory.read_json("summary.json") if has_summary else {}
    step = max((line["step"] for line in lines), default=0)
    is_imported = bool(manifest.get("origin")) and not lines
    state = "finished" if has_summary else "imported" if is_imported else f"unfinished, step {step:,}"
    model, splitting = config.model, config.splitting
    defaults = flatten_config(Config())
    fields = flatten_config(config)
    return Page(
        title=str(config.name),
        state=state,
        is_finished=has_summary,
        subtitle=f"{model.name} on {config.data.name}: {splitting.scheme} + {splitting.substep_text}, "
        f"{splitting.steps} steps to t = {splitting.horizon:g}, {config.normalization.placement}-norm, "
        f"seed {config.seed}",
        cards=_cards(summary) if summary else _latest(lines),
        notes=notes,
        figures=pictures,
        facts=_facts(directory.path, manifest, summary),
        config=fields,
        changed=frozenset(path for path, value in fields.items() if value != defaults.get(path)),
    )


def _cards(summary: dict[str, Any]) -> dict[str, str]:
    """Return the measures of a finished run."""
    formats: dict[str, tuple[str, Callable[[Any], str]]] = {
        "test_accuracy": ("test accuracy", _percent),
        "val_accuracy": ("val accuracy", _percent),
        "test_loss": ("test loss [nats]", lambda value: f"{value:.4f}"),
        "num_parameters": ("parameters", lambda value: f"{value:,}"),
        "steps": ("optimiser steps", lambda value: f"{value:,}"),
        "epochs": ("epochs", lambda value: f"{value:.4g}"),
        "images_per_second": ("images / s", lambda value: f"{value:,.0f}"),
        "wall_seconds": ("of wall time", _duration),
    }
    return {label: write(summary[key]) for key, (label, write) in formats.items() if _is_number(summary.get(key))}


def _latest(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Return the newest measures of a run that is not finished."""
    cards = {}
    for split in ("train", "val"):
        of_split = [line for line in lines if line["split"] == split]
        if of_split and _is_number(of_split[-1].get("accuracy")):
            cards[f"{split} accuracy at step {of_split[-1]['step']:,}"] = _percent(of_split[-1]["accuracy"])
    return cards


def _facts(path: Path, manifest: dict[str, Any], summary: dict[str, Any]) -> dict[str, str]:
    """Return where, when and with what a run was made."""
    environment = manifest.get("environment") or {}
    devices, origin = environment.get("devices") or {}, manifest.get("origin") or {}
    versions = environment.get("versions") or {}
    sizes = manifest.get("split_sizes") or {}
    facts = {
        "folder": str(path),
        "started": manifest.get("started"),
        "command": " ".join(map(str, manifest.get("command") or ())),
        "commit": manifest.get("commit"),
        "devices": f"{devices.get('count')} x {devices.get('kind')} ({devices.get('platform')})" if devices else None,
        "machine": f"{environment.get('machine')}, {environment.get('cpu_cores')} cores" if environment else None,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "images": ", ".join(f"{size:,} {name}" for name, size in sizes.items()),
        "data fingerprint": manifest.get("data_fingerprint"),
        "origin": ", ".join(f"{key}: {value}" for key, value in origin.items()),
        "order certificate": (manifest.get("certificate") or {}).get("text"),
        "sha256 of the weights": summary.get("params_sha256"),
    }
    return {name: str(value) for name, value in facts.items() if value}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _percent(value: float) -> str:
    return f"{value:.2%}"


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{hours:.1f} h" if hours >= 1 else f"{minutes:.1f} min" if minutes >= 1 else f"{seconds:.1f} s"
