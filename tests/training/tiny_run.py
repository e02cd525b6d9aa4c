"""A run of seconds on the digits, and what tests of runs share: words, hashes, an interruption."""

import functools
import hashlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from ctt.cli.main import main

TOTAL = 6
"""Optimiser steps of the tiny run; it evaluates and saves at 3 and 6, and logs at 2, 4 and 6."""

CONFIG = """
from ctt.config import AugmentationConfig, Config, ModelConfig, SplittingConfig, TrainingConfig

def get_config():
    return Config(
        augmentation=AugmentationConfig(crop_padding=1, flip=True),
        model=ModelConfig(
            patch_size=4, width=8, num_heads=2, feedforward_width=8, activation="relu", dropout=0.1
        ),
        splitting=SplittingConfig(steps=2),
        training=TrainingConfig(steps=6, batch_size=16, log_every=2, eval_every=3, certify=False),
    )
"""

COMPILATION = {
    "jax_disable_most_optimizations": True,
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""A tiny run is compiled far longer than it runs: compile badly, and each program once a session."""


@functools.cache
def cache_folder() -> str:
    """Return the folder of programs compiled in this session; each is compiled once."""
    return tempfile.mkdtemp(prefix="ctt-tests-")


@pytest.fixture(scope="session")
def compilation_cache() -> Iterator[None]:
    """Jax compiles quickly and keeps its programs on disk, in this process."""
    settings = {"jax_compilation_cache_dir": cache_folder(), **COMPILATION}
    before = {name: jax.config.values[name] for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    jax_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    jax_cache.reset_cache()


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """`ctt` installs a handler of SIGTERM in its process, which here is pytest's."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture(scope="session")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of the tiny run."""
    path = tmp_path_factory.mktemp("configs") / "tiny.py"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="session")
def finished_run(compilation_cache: None, config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run trained to its end, shared: tests must not change it."""
    handler = signal.getsignal(signal.SIGTERM)
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert main(["train", str(config_file), "--out", str(out), "--json", str(out.with_name("train.json"))]) == 0
    signal.signal(signal.SIGTERM, handler)
    return out


def compilation_environment() -> dict[str, str]:
    """Return this process's environment with `compilation_cache` for a child."""
    settings = {"jax_compilation_cache_dir": cache_folder(), **COMPILATION}
    return os.environ | {name.upper(): str(int(value) if value is True else value) for name, value in settings.items()}


def read_summary(run: Path) -> dict[str, Any]:
    """Return the summary of a run."""
    return json.loads((run / "summary.json").read_text())


def read_lines(run: Path) -> list[dict[str, Any]]:
    """Return the lines of the metrics of a run; each must be whole."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def saved_steps(run: Path) -> list[int]:
    """Return the steps of a run's checkpoints."""
    return sorted(int(path.name) for path in (run / "checkpoints").iterdir())


def hash_tree(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file under a folder by relative path, and of no value for folders."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int, signum: int = signal.SIGINT) -> None:
    """Send this process a signal while the update that ends at a step is being prepared.

    Args:
        monkeypatch: undoes it.
        step: number of finished updates at which the run should stop.
        signum: the signal.
    """
    from ctt.training.dispatch import Dispatcher

    original = Dispatcher.dispatch

    def dispatch(self: Dispatcher, finished: int, count: int) -> None:
        if finished == step - 1:
            os.kill(os.getpid(), signum)
        original(self, finished, count)

    monkeypatch.setattr(Dispatcher, "dispatch", dispatch)
    monkeypatch.setattr(Dispatcher, "choose", lambda self, limit: 1)  # So that it stops at this very step.
