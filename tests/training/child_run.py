"""A run in a process of its own, to be killed at any moment: its config, its command, and when to strike."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_run import compilation_environment, read_summary

CONFIG = """
from ctt.config import AugmentationConfig, Config, ModelConfig, OptimizerConfig, SplittingConfig, TrainingConfig

def get_config():
    return Config(
        augmentation=AugmentationConfig(crop_padding=1, flip=True, randaugment=2, mixup=0.8),
        model=ModelConfig(
            patch_size=4, width=32, num_heads=2, feedforward_width=64, activation="relu",
            dropout=0.1, stochastic_depth=0.2,
        ),
        splitting=SplittingConfig(steps=4),
        optimizer=OptimizerConfig(name="muon", ema_decay=0.9, label_smoothing=0.1),
        training=TrainingConfig(
            steps=120, batch_size=16, micro_batches=2, steps_per_dispatch=4,
            log_every=2, eval_every=4, checkpoint_every=1, certify=False,
        ),
    )
"""
"""All that a run keeps from step to step: two optimisers, a moving average, masks, augmentation by example."""

STEPS = 120
"""Optimiser steps of this run, which saves after each."""

MOMENTS = ("start", "compile", "save", "evaluation", "step", "end")
"""What a run may be struck in; `schedule` draws all but `end`, and `save` twice as often as each of the others."""


def command(config_file: Path, out: Path, *words: str) -> list[str]:
    """Return the words of the command that begins a run and goes on with it.

    Args:
        config_file: its config.
        out: its folder.
        *words: more of them.
    """
    return [sys.executable, "-m", "ctt", "train", str(config_file), "--out", str(out), "--resume", "auto", *words]


def start(words: list[str]) -> subprocess.Popen[str]:
    """Start a process with the programs that this session has compiled.

    Args:
        words: of its command.
    """
    environment = compilation_environment() | {"PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(words: list[str]) -> tuple[int, str]:
    """Run a command to its end, and return its status and what it wrote to the error output.

    Args:
        words: of the command.
    """
    process = start(words)
    _, errors = process.communicate(timeout=600)
    return process.returncode, errors


def sha256(run: Path) -> str:
    """Return the hash of the final weights of a run.

    Args:
        run: its folder.
    """
    return read_summary(run)["params_sha256"]


def schedule(generator: random.Random, count: int) -> list[str]:
    """Return moments to strike at, in any order; of six two are in a save.

    Args:
        generator: draws them.
        count: how many.
    """
    wanted = [("start", "save", "step", "compile", "save", "evaluation")[index % 6] for index in range(count)]
    generator.shuffle(wanted)
    return wanted


class Striker:
    """Sends a signal to a run at a moment, and counts what it hit."""

    def __init__(self, run: Path, generator: random.Random):
        """Choose nothing yet.

        Args:
            run: the folder of the run, or of a group.
            generator: draws the moments.
        """
        self._run, self._generator = run, generator
        self.hits: Counter[str] = Counter()

    def strike(self, process: subprocess.Popen[str], moment: str, signum: int = signal.SIGKILL) -> str:
        """Wait for a moment, send a signal and wait for the end; return the error output.

        Args:
            process: the run.
            moment: one of `MOMENTS`.
            signum: the signal.
        """
        self._wait(process, moment)
        process.send_signal(signum)
        _, errors = process.communicate(timeout=600)
        self.hits[f"{moment}, {self._find_leftovers()}"] += 1
        return errors

    def _find_leftovers(self) -> str:
        """Return what the run was at, by what it left."""
        if self._unfinished():
            return "a checkpoint half written"
        if any(path for run in self._runs() for path in run.glob("*.partial")):
            return "a file half written"
        if not any((run / "checkpoints").is_dir() for run in self._runs()):
            return "no checkpoint yet"
        return "between two saves"

    def _wait(self, process: subprocess.Popen[str], moment: str) -> None:
        draw = self._generator.uniform
        if moment == "start":
            time.sleep(draw(0, 3))
        elif moment == "compile":  # The last line before it names the data and the folder.
            assert process.stdout is not None
            while (line := process.stdout.readline()) and "run directory" not in line:
                pass
            time.sleep(draw(0, 1.5))
        elif moment == "save":
            seen, count = self._unfinished(), self._generator.randint(1, 3)
            for _ in range(count):
                seen |= self._watch(process, lambda seen=frozenset(seen): self._unfinished() - seen)
            time.sleep(draw(0, 0.01))
        elif moment == "evaluation":  # It follows the line of the training measures of the same step.
            count = self._count('"split": "train"')
            self._watch(process, lambda: self._count('"split": "train"') >= count + 2)
        elif moment == "step":
            count = self._count('"split"')
            self._watch(process, lambda: self._count('"split"') > count)
            time.sleep(draw(0, 0.3))
        else:
            count = self._count('"split": "test"')
            self._watch(process, lambda: self._count('"split": "test"') > count)

    def _unfinished(self) -> set[str]:
        return {str(path) for run in self._runs() for path in run.glob("checkpoints/*.orbax-checkpoint-tmp*")}

    def _count(self, text: str) -> int:
        files = [path for run in self._runs() if (path := run / "metrics.jsonl").exists()]
        return sum(path.read_text(errors="replace").count(text) for path in files)

    def _runs(self) -> list[Path]:
        return [self._run, *self._run.glob("seed-*")]

    @staticmethod
    def _watch(process: subprocess.Popen[str], look: Callable[[], Any]) -> Any:
        while process.poll() is None:
            if found := look():
                return found
            time.sleep(0.0005)
        raise AssertionError(f"the run ended by itself: {process.communicate()[1]}")
