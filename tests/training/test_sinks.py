"""Where measures go: the record, TensorBoard, Weights & Biases, and what happens when one of them fails."""

import json
import struct
import sys
import types

import pytest
from tensorboardX.proto.event_pb2 import Event

from ctt.config.error import InputError
from ctt.training.directory import RunDirectory
from ctt.training.telemetry.sink import OptionalSink, check_sinks, open_sinks
from ctt.training.telemetry.tensorboard import TensorBoardSink

MANIFEST = {"run_id": "0123456789abcdef", "environment": {"python": "3.13"}}


def read_events(folder):
    """Return the events of a log directory in the order in which TensorBoard reads them."""
    events = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, offset = path.read_bytes(), 0
        while offset < len(content):
            (length,) = struct.unpack_from("<Q", content, offset)
            events.append(Event.FromString(content[offset + 12 : offset + 12 + length]))
            offset += 16 + length
    return events


def read_points(folder):
    """Return the points as TensorBoard shows them: a session's start hides all earlier events of later steps."""
    points = []
    for event in read_events(folder):
        if event.HasField("session_log"):
            points = [point for point in points if point[0] < event.step]
        points += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return points


class FakeWandb(types.ModuleType):
    """The four functions of the package that are used, written down."""

    def __init__(self):
        super().__init__("wandb")
        self.began, self.logged, self.axes, self.finished = [], [], [], 0

    def init(self, **arguments):
        self.began.append(arguments)
        return self

    def define_metric(self, name, **arguments):
        self.axes.append((name, arguments))

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.finished += 1

    @staticmethod
    def Settings(**arguments):
        return arguments


@pytest.fixture
def directory(tmp_path, tiny_config):
    directory = RunDirectory(tmp_path / "run")
    directory.create(tiny_config())
    return directory


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def wandb(monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def open_at(config, directory, step, warnings):
    return open_sinks(config, directory, MANIFEST, step, warnings.append)


def test_the_record_has_a_line_a_measurement(tiny_config, directory, warnings):
    sinks = open_at(tiny_config(), directory, 0, warnings)
    sinks.write(2, "train", {"loss": 0.5, "accuracy": 0.25})
    sinks.write(2, "val", {"loss": float("nan")})
    sinks.close()
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    assert lines == [
        {"step": 2, "split": "train", "loss": 0.5, "accuracy": 0.25},
        {"step": 2, "split": "val", "loss": None},
    ]


@pytest.mark.parametrize("tail", [b'{"step": 6, "split": "tr', b"\x00\xff\x00", b"7\n", b'{"step": "six"}\n', b"[]"])
def test_a_record_with_a_damaged_end_goes_on(tiny_config, directory, warnings, tail):
    open_at(tiny_config(), directory, 0, warnings).write(2, "train", {"loss": 0.5})
    with directory.metrics.open("ab") as file:
        file.write(tail)
    open_at(tiny_config(), directory, 4, warnings).write(6, "train", {"loss": 0.25})
    assert [(line["step"], line["loss"]) for line in directory.read_metrics()] == [(2, 0.5), (6, 0.25)]
    assert len(directory.metrics.read_text().splitlines()) == 2


def test_a_resumed_run_has_each_point_once(tiny_config, directory, warnings):
    first = open_at(tiny_config(), directory, 0, warnings)
    for step in (2, 4, 6):
        first.write(step, "train", {"loss": 1.0 / step})
    first.close()
    second = open_at(tiny_config(), directory, 4, warnings)
    for step in (6, 8):
        second.write(step, "train", {"loss": 1.0 / step})
    second.close()
    expected = [(step, pytest.approx(1 / step)) for step in (2, 4, 6, 8)]
    assert [(line["step"], line["loss"]) for line in directory.read_metrics()] == expected
    assert [(step, value) for step, _, value in read_points(directory.path / "tensorboard")] == expected
    assert warnings == []


def test_tensorboard_has_the_scalars_by_split(tiny_config, directory, warnings):
    sinks = open_at(tiny_config(), directory, 0, warnings)
    sinks.write(3, "val", {"loss": 0.5, "splitting": {"stage_1": [0.125, 0.25]}, "note": "none"})
    points = read_points(directory.path / "tensorboard")  # Before it is closed: a kill loses nothing.
    assert points == [(3, "val/loss", 0.5), (3, "val/splitting/stage_1/0", 0.125), (3, "val/splitting/stage_1/1", 0.25)]


def test_tensorboard_is_left_out_if_asked(tiny_config, directory, warnings):
    open_at(tiny_config({"logging.tensorboard": False}), directory, 0, warnings).write(1, "train", {"loss": 0.5})
    assert not (directory.path / "tensorboard").exists()


def test_a_copy_that_cannot_be_opened_is_named_once(tiny_config, directory, warnings):
    (directory.path / "tensorboard").write_text("in the way")
    sinks = open_at(tiny_config(), directory, 0, warnings)
    for step in (1, 2):
        sinks.write(step, "train", {"loss": 0.5})
    sinks.close()
    assert len(warnings) == 1
    assert warnings[0].startswith("Warning: nothing more goes to TensorBoard (FileExistsError: ")
    assert len(directory.read_metrics()) == 2


def test_a_copy_that_fails_later_is_named_once(tmp_path, warnings):
    class Full(TensorBoardSink):
        def write(self, step, split, values):
            raise OSError(28, "No space left on device")

    sink = OptionalSink("TensorBoard", lambda: Full(tmp_path), warnings.append)
    for step in (1, 2):
        sink.write(step, "train", {"loss": 0.5})
    sink.rewind(1)
    sink.close()
    (warning,) = warnings
    assert warning == (
        "Warning: nothing more goes to TensorBoard (OSError: [Errno 28] No space left on device); training goes on, "
        "and metrics.jsonl has everything."
    )


def test_the_record_may_not_fail(tiny_config, directory, warnings):
    sinks = open_at(tiny_config(), directory, 0, warnings)
    directory.metrics.mkdir()
    with pytest.raises(OSError, match=r"metrics\.jsonl"):
        sinks.write(1, "train", {"loss": 0.5})


def test_a_missing_package_is_refused_before_the_run(tiny_config, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r'logging\.wandb` needs .*Get it by: pip install "ctt-jax\[wandb\]"'):
        check_sinks(tiny_config({"logging.wandb": "depth"}))


@pytest.mark.parametrize("project", ["", " depth", "a/b", "50%"])
def test_a_project_that_cannot_be_is_refused(tiny_config, project):
    with pytest.raises(InputError, match=r"`logging\.wandb` must be a project's name"):
        tiny_config({"logging.wandb": project})


def test_wandb_goes_on_with_the_same_run(tiny_config, directory, warnings, wandb):
    config = tiny_config({"logging.wandb": "depth", "name": "tiny"})
    for step in (0, 4):
        open_at(config, directory, step, warnings).close()
    assert [(began["project"], began["id"], began["resume"]) for began in wandb.began] == [
        ("depth", MANIFEST["run_id"], "allow")
    ] * 2
    assert (wandb.began[0]["dir"], wandb.began[0]["name"]) == (str(directory.path), "tiny")
    assert wandb.began[0]["config"]["splitting"]["steps"] == 2
    assert wandb.finished == 2


def test_wandb_has_the_step_as_its_axis(tiny_config, directory, warnings, wandb):
    open_at(tiny_config({"logging.wandb": "depth"}), directory, 0, warnings).write(3, "val", {"loss": 0.5})
    assert wandb.logged == [{"step": 3, "val/loss": 0.5}]
    assert ("*", {"step_metric": "step"}) in wandb.axes


def test_a_service_that_fails_does_not_stop_the_run(tiny_config, directory, warnings, wandb):
    wandb.log = lambda values: exec('raise ConnectionError("no route to host\\nand more")')
    sinks = open_at(tiny_config({"logging.wandb": "depth"}), directory, 0, warnings)
    for step in (1, 2):
        sinks.write(step, "train", {"loss": 0.5})
    assert len(warnings) == 1
    assert "Weights & Biases (ConnectionError: no route to host); training goes on" in warnings[0]
    assert len(directory.read_metrics()) == 2


def test_the_real_wandb_writes_without_a_network(tiny_config, directory, warnings, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    sinks = open_at(tiny_config({"logging.wandb": "depth"}), directory, 0, warnings)
    sinks.write(3, "val", {"loss": 0.5})
    sinks.close()
    assert warnings == []
    (written,) = (directory.path / "wandb").glob(f"offline-run-*-{MANIFEST['run_id']}/run-*.wandb")
    assert b"val/loss" in written.read_bytes()
