"""A NaN that gets into a run stops it, is in no checkpoint, and is gone after a resume."""

import dataclasses
import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tiny_run import interrupt_at, read_lines, read_summary, saved_steps

import ctt.training.step as step_module
from ctt.cli.main import main
from ctt.training.dispatch import Dispatcher

WORDS = ("--optimizer.ema-decay", "0.9", "--training.steps-per-dispatch", "16", "--training.keep-checkpoints", "9")
SAVE_OFTEN = ("--training.checkpoint-every", "1")
MESSAGE = re.compile(r"not finite (?:at|after) step (\d) \((?:seen|it broke) between steps (\d) and (\d)\)")


@pytest.fixture(scope="module")
def train(compilation_cache, config_file):
    """Return a function that trains the tiny run with a moving average of its weights."""

    def call(out, *words):
        return main(["train", str(config_file), "--out", str(out), *WORDS, *words])

    return call


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """The run that no NaN gets into; tests must not change it."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert train(out) == 0
    return out


@pytest.fixture
def poison_batch(monkeypatch):
    """Return a function that makes the first pixel of the batch of a step not a number, for a seed or all."""
    original = step_module.augment_batch

    def patch(step, seed=None):
        def augment(config, finished, batch, **options):
            augmented = original(config, finished, batch, **options)
            if seed not in (None, config.seed):
                return augmented
            images = augmented.images.astype(jnp.float32)
            value = jnp.where(finished == step - 1, jnp.nan, images[0, 0, 0, 0])
            return dataclasses.replace(augmented, images=images.at[0, 0, 0, 0].set(value))

        monkeypatch.setattr(step_module, "augment_batch", augment)

    return patch


@pytest.fixture
def poison_state(monkeypatch):
    """Return a function that makes one value of a part of the state after a step not a number."""
    original = Dispatcher.dispatch

    def patch(step, part, value=math.nan):
        def dispatch(self, finished, count):
            original(self, finished, count)
            if finished < step <= finished + count:
                self.state = _poison(self.state, part, value)

        monkeypatch.setattr(Dispatcher, "dispatch", dispatch)

    return patch


def _poison(state, part, value):
    leaves, structure = jax.tree.flatten(getattr(state, part))
    index = max(range(len(leaves)), key=lambda i: (jnp.issubdtype(leaves[i].dtype, jnp.floating), leaves[i].size))
    leaf = np.array(leaves[index])
    leaf.flat[leaf.size // 2] = value
    leaves[index] = jax.device_put(leaf, leaves[index].sharding)
    return dataclasses.replace(state, **{part: jax.tree.unflatten(structure, leaves)})


def _assert_checkpoints_finite(run):
    for step in saved_steps(run):
        saved = ocp.StandardCheckpointer().restore(run / "checkpoints" / str(step) / "state")
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(saved)), step


def _assert_resumes_as_if_nothing_happened(run, whole):
    assert main(["train", "--resume", str(run)]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(whole)["params_sha256"]
    evaluations = [[line for line in read_lines(r) if line["split"] != "train"] for r in (run, whole)]
    assert evaluations[0] == evaluations[1]


def _read_message(capsys):
    message = capsys.readouterr().err.strip()
    assert len(message.splitlines()) == 1, message
    assert "Traceback" not in message
    return message, tuple(map(int, MESSAGE.search(message).groups()))


@pytest.mark.parametrize("step", [2, 5])
def test_a_nan_in_a_batch(train, whole, tmp_path, capsys, monkeypatch, poison_batch, step):
    """Nothing is due between the steps 3 and 6 of this run, so the steps 4 to 6 may share a dispatch."""
    run = tmp_path / "run"
    poison_batch(step)
    assert train(run, "--training.log-every", "3") == 1
    monkeypatch.undo()
    message, (at, first, last) = _read_message(capsys)
    assert (at, first <= step <= last) == (step, True), message
    kept = [] if step == 2 else [3]
    assert ("no checkpoint was saved yet" if step == 2 else "the checkpoint of step 3 is kept") in message
    assert (saved_steps(run) if kept else []) == kept
    assert not (run / "summary.json").exists()
    _assert_resumes_as_if_nothing_happened(run, whole)


@pytest.mark.parametrize("words", [SAVE_OFTEN, ()], ids=["saves_at_every_step", "saves_at_3_and_6"])
@pytest.mark.parametrize("part", ["params", "opt_state", "average"])
def test_a_nan_in_the_state(train, whole, tmp_path, capsys, monkeypatch, poison_state, part, words):
    run = tmp_path / "run"
    poison_state(5, part)
    assert train(run, *words) == 1
    monkeypatch.undo()
    message, (_, first, last) = _read_message(capsys)
    newest = 4 if words else 3
    assert f"the checkpoint of step {newest} is kept" in message
    assert newest < first <= last <= 6
    assert last >= 5
    assert saved_steps(run) == ([1, 2, 3, 4] if words else [3])
    _assert_checkpoints_finite(run)
    assert all(math.isfinite(value) for line in read_lines(run) for key, value in line.items() if key != "split")
    _assert_resumes_as_if_nothing_happened(run, whole)


def test_an_infinite_moment_is_not_saved(train, tmp_path, capsys, poison_state):
    """Weights whose second moment is infinite are never changed again, and no loss would show it."""
    run = tmp_path / "run"
    poison_state(2, "opt_state", math.inf)
    assert train(run, *SAVE_OFTEN) == 1
    assert (
        "The state (weights, the optimiser's moments, averages) is not finite after step 2" in _read_message(capsys)[0]
    )
    assert saved_steps(run) == [1]


def test_a_poisoned_state_is_not_saved_by_an_interruption(train, tmp_path, capsys, monkeypatch, poison_state):
    run = tmp_path / "run"
    poison_state(4, "average")
    interrupt_at(monkeypatch, 4)
    assert train(run) == 1
    assert "the checkpoint of step 3 is kept" in _read_message(capsys)[0]
    assert saved_steps(run) == [3]


def test_the_seed_that_diverged_is_reported_and_the_others_finish(
    train, whole, tmp_path, capsys, monkeypatch, poison_batch
):
    group = tmp_path / "group"
    poison_batch(5, seed=1)
    assert train(group, "--seeds", "2", "--json", str(tmp_path / "group.json")) == 1
    monkeypatch.undo()
    message, (at, _, _) = _read_message(capsys)
    assert ("seed 1 diverged" in message, at) == (True, 5)
    summary = json.loads((tmp_path / "group.json").read_text())
    assert [run["seed"] for run in summary["diverged"]] == [1]
    assert [run["params_sha256"] for run in summary["runs"]] == [read_summary(whole)["params_sha256"]]
    assert saved_steps(group / "seed-1") == [3]
    assert main(["train", "--resume", str(group)]) == 0
    assert (len(read_summary(group)["runs"]), read_summary(group)["diverged"]) == (2, [])
