"""Where and with what a run was made: `manifest.json`."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

import ctt
from ctt.data.dataset import Dataset
from ctt.training.compilation import visible_cores

_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "diffrax", "orbax-checkpoint", "numpy")


def describe_environment() -> dict[str, Any]:
    """Return what decides whether two runs are bit-equal: versions, kind of machine, cores, devices."""
    devices = jax.devices()
    return {
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES} | {"ctt": ctt.__version__},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_cores": visible_cores(),
        "devices": {"kind": devices[0].device_kind, "platform": devices[0].platform, "count": len(devices)},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }


def build_manifest(dataset: Dataset) -> dict[str, Any]:
    """Return the manifest of a new run.

    Args:
        dataset: the data of the run.
    """
    return {
        **describe_run(),
        "data_fingerprint": dataset.fingerprint,
        "split_sizes": {name: len(dataset.split(name).labels) for name in ("train", "val", "test")},
        "class_names": list(dataset.class_names),
    }


def describe_run() -> dict[str, Any]:
    """Return what is known of a run before its data: its identity, and with what it is made."""
    return {
        "run_id": uuid.uuid4().hex,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "commit": _commit(),
        "environment": describe_environment(),
    }


def environment_changes(manifest: dict[str, Any]) -> list[str]:
    """Return what differs between the run's environment and this one, as readable clauses.

    Args:
        manifest: the manifest of a run.
    """
    then, now = _flatten(manifest.get("environment", {})), _flatten(describe_environment())
    return [
        f"{key}: {then.get(key)} then, {now.get(key)} now"
        for key in sorted(then | now)
        if then.get(key) != now.get(key)
    ]


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _commit() -> str | None:
    """Return the commit of a source checkout of ctt, with ``+changes`` if it was edited, or None."""
    root = Path(ctt.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+changes" if status.stdout.strip() else "")
