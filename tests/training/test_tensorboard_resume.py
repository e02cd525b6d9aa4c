"""TensorBoard shows every point of a run once, whatever interrupted it."""

from collections import Counter

import numpy as np
import pytest
from test_sinks import read_points
from tiny_run import interrupt_at, read_lines, saved_steps

from ctt.cli.main import main
from ctt.training.dispatch import Dispatcher

WORDS = ("--training.log-every", "1", "--training.eval-every", "2", "--training.checkpoint-every", "4")


class _DeadError(Exception):
    """Stands for a kill: nothing is saved any more."""


def _die_at(monkeypatch, step):
    """Stop the run when the updates before a step have been logged."""
    original = Dispatcher.dispatch

    def dispatch(self, finished, count):
        if finished == step - 1:
            raise _DeadError
        original(self, finished, count)

    monkeypatch.setattr(Dispatcher, "dispatch", dispatch)


@pytest.fixture(scope="module")
def run(compilation_cache, config_file, tmp_path_factory):
    """A run that was interrupted, and died when it had logged more than it had saved, and went on each time."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 3)
        assert main(["train", str(config_file), "--out", str(out), *WORDS]) == 130
    with pytest.MonkeyPatch.context() as patch:
        _die_at(patch, 6)
        with pytest.raises(_DeadError):
            main(["train", "--resume", str(out)])
    assert (saved_steps(out), read_lines(out)[-1]["step"]) == ([3, 4], 5)
    assert main(["train", "--resume", str(out)]) == 0
    assert len(list((out / "tensorboard").iterdir())) == 3
    return out


def _expected(run):
    """Return the losses in the record, which the resume has cut and written again, by name and step."""
    points = {(f"{line['split']}/loss", line["step"]): line["loss"] for line in read_lines(run)}
    assert len(points) == len(read_lines(run)) == 6 + 3 + 1
    return points


def test_every_point_is_there_once(run):
    points = read_points(run / "tensorboard")
    assert set(Counter((step, tag) for step, tag, _ in points).values()) == {1}
    received = {(tag, step): value for step, tag, value in points if tag.endswith("/loss")}
    assert received == {key: np.float32(value) for key, value in _expected(run).items()}


def test_tensorboard_itself_shows_every_point_once(run):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    shown = {tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert shown["train/loss"] == [1, 2, 3, 4, 5, 6]
    assert shown["val/loss"] == [2, 4, 6]
    assert shown["test/loss"] == [6]
    received = {(tag, e.step): e.value for tag in shown if tag.endswith("/loss") for e in events.Scalars(tag)}
    assert received == {key: np.float32(value) for key, value in _expected(run).items()}
