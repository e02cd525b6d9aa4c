"""Runs on several devices, in processes of their own: jax decides at its start how many a process has."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny_run import COMPILATION, compilation_environment, interrupt_at, read_lines

import ctt

NUM_DEVICES = 8
"""Devices of the process that plays scenes."""

_HARSH = (
    "--augmentation.crop-padding 2 --augmentation.randaugment 2 --augmentation.color-jitter 0.4 "
    "--augmentation.erasing 0.5 --augmentation.mixup 0.8 --augmentation.cutmix 1.0 --model.dropout 0.1 "
    "--model.stochastic-depth 0.2 --optimizer.label-smoothing 0.1 --optimizer.ema-decay 0.9 "
    "--optimizer.learning-rate 0.01 --model.width 64 --model.feedforward-width 64 --training.log-every 1"
)
HARSH = _HARSH.split()
"""Words that turn on all that is random, and make the weights large enough to be cut up among devices."""


def train_scene(config: Path, out: Path | None, *words: str, stop: int | None = None) -> dict[str, Any]:
    """Return the description of a call of ``ctt train``.

    Args:
        config: the config file.
        out: the run directory; None: it is in the words.
        words: more words of the command line.
        stop: number of finished updates at which Ctrl-C is pressed; None: never.
    """
    return {"words": ["train", str(config), *([] if out is None else ["--out", str(out)]), *words], "stop": stop}


def play(scenes: list[dict[str, Any]], num_devices: int = NUM_DEVICES) -> list[dict[str, Any]]:
    """Play scenes one after another in a process with virtual devices; return the status and the output of each.

    Args:
        scenes: what `train_scene` returned, or ``{"shards": words}``, or ``{"augmented": words}``.
        num_devices: devices of that process.
    """
    command = [sys.executable, __file__, json.dumps(scenes)]
    done = subprocess.run(command, env=_environment(num_devices), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def _environment(num_devices: int) -> dict[str, str]:
    return compilation_environment() | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}",
        "PYTHONPATH": str(Path(ctt.__file__).parents[1]),
    }


def start_process(
    words: list[str], *, process_id: int, port: int, timeout: float = 60, num_devices: int = 1, num_processes: int = 2
) -> subprocess.Popen[str]:
    """Start one process of a run that several share, by the real command line.

    Args:
        words: of the command line, after ``ctt``.
        process_id: number of the process.
        port: of process 0.
        timeout: seconds it waits for the others.
        num_devices: virtual devices it has.
        num_processes: of the run.
    """
    together = (
        f"--devices.coordinator 127.0.0.1:{port} --devices.num-processes {num_processes} "
        f"--devices.process-id {process_id} --devices.timeout {timeout}"
    )
    return subprocess.Popen(
        [sys.executable, "-m", "ctt", *words, *together.split()],
        env=_environment(num_devices),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    """Return a port that nobody listens at."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended."""

    status: int
    out: str
    err: str


def finish(processes: list[subprocess.Popen[str]], timeout: float = 300) -> list[Ended]:
    """Wait for processes, and end those that hang.

    Args:
        processes: all of a run.
        timeout: seconds for each.
    """
    try:
        texts = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [Ended(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def train_together(*words: str, num_devices: int = 1, **changes: list[str]) -> list[Ended]:
    """Train with two processes to the end.

    Args:
        words: of the command line, after ``ctt train``.
        num_devices: virtual devices of each.
        changes: more words of one process, as in ``second=["--seed", "1"]``.
    """
    port = free_port()
    more = [changes.get("first", []), changes.get("second", [])]
    return finish(
        [
            start_process(["train", *words, *more[index]], process_id=index, port=port, num_devices=num_devices)
            for index in range(2)
        ]
    )


def wait_for_step(processes: list[subprocess.Popen[str]], run: Path, step: int) -> None:
    """Wait until a run has logged a step, or fail because a process has ended.

    Args:
        processes: all of the run.
        run: its folder.
        step: the step.
    """
    for _ in range(2400):
        ended = [process for process in processes if process.poll() is not None]
        if ended:
            raise AssertionError([process.communicate() for process in ended])
        path = run / "metrics.jsonl"
        if path.exists() and any(f'"step": {step},' in line for line in path.read_text().splitlines()):
            return
        time.sleep(0.05)
    raise AssertionError("the run did not get on")


def losses(run: Path, split: str = "train") -> list[float]:
    """Return the losses of a run, one a line of its metrics.

    Args:
        run: its folder.
        split: of which split.
    """
    lines = [line for line in read_lines(run) if line["split"] == split]
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps))  # Nothing is written twice.
    return [line["loss"] for line in lines]


# What the process that plays scenes does.


def _build(words: list[str]) -> Any:
    from ctt.cli.command import default_config, parse
    from ctt.cli.train import TrainArguments
    from ctt.config.resolve import resolve_config

    default = TrainArguments(config=default_config(words, command="train"))
    return resolve_config(parse(TrainArguments, words, default=default, command="train", description=None).config)


def describe_shards(words: list[str]) -> dict[str, list[list[int]]]:
    """Return, of each array of a state on its devices, its shape, and the shape that a device holds.

    Args:
        words: of the command line, after ``ctt train``.
    """
    from ctt.models.build import build_model
    from ctt.training.devices import build_layout
    from ctt.training.state import state_record
    from ctt.training.step import build_update

    config = _build(words)
    layout = build_layout(config.devices, config.training.batch_size)
    state, _ = build_update(config, build_model(config), 10)
    record = state_record(layout.place(state, layout.cut(state)))
    return {
        jax.tree_util.keystr(path): [list(leaf.shape), list(leaf.addressable_shards[0].data.shape)]
        for path, leaf in jax.tree.leaves_with_path(record)
    }


def draw_batches(words: list[str], steps: range = range(2)) -> list[str]:
    """Return the sha256 of what an update is made of, for some steps: augmented images and labels.

    Args:
        words: of the command line, after ``ctt train``.
        steps: the steps.
    """
    from ctt.data.source import load_dataset
    from ctt.training.devices import build_layout
    from ctt.training.digest import tree_sha256
    from ctt.training.feed import build_feed
    from ctt.training.milestone import Milestones
    from ctt.training.step import augment_batch

    config = _build(words)
    layout = build_layout(config.devices, config.training.batch_size)
    split = load_dataset(config.data).train
    total = len(steps)
    feed = build_feed(config, split, layout, Milestones(total, total, total, total), first=0)

    def draw(constants: Any, chunk: Any, index: Any, step: Any) -> Any:
        return augment_batch(config, step, jax.lax.optimization_barrier(feed.pick(constants, chunk, index)))

    run, chunk, found = jax.jit(draw), feed.take(0, len(steps)), []
    for step in steps:
        batch = run(feed.constants, chunk, np.int32(step), np.int32(step))
        assert layout.num_shares == 1 or len(batch.images.sharding.device_set) == layout.num_shares
        found.append(tree_sha256(jax.device_get({"images": batch.images, "labels": batch.labels})))
    feed.close()
    return found


def _play_one(scene: dict[str, Any]) -> Any:
    import contextlib
    import io

    from ctt.cli.main import main

    if "shards" in scene:
        return describe_shards(scene["shards"])
    if "augmented" in scene:
        return draw_batches(scene["augmented"])
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        if scene["stop"] is not None:
            interrupt_at(patch, scene["stop"])
        status = main(scene["words"])
    return {"status": status, "text": text.getvalue()}


if __name__ == "__main__":
    for name, value in COMPILATION.items():
        jax.config.update(name, value)
    print(json.dumps([_play_one(scene) for scene in json.loads(sys.argv[1])]))
