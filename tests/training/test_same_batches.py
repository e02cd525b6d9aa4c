"""How the batches come to the device changes no bit of a run: resident or streamed, how many a dispatch, read ahead."""

import shutil

import pytest
from tiny_run import TOTAL, interrupt_at, read_lines, read_summary, saved_steps

import ctt.training.feed as feed
from ctt.cli.main import main

_WORDS = "--augmentation.crop-padding 2 --augmentation.mixup 0.8 --model.dropout 0.1 --training.log-every 1"
WORDS = _WORDS.split()


def train(config_file, run, *words):
    assert main(["train", str(config_file), "--out", str(run), *WORDS, *words]) == 0
    return read_summary(run)["params_sha256"]


def measures(run):
    names = ("step", "split", "loss", "accuracy", "gradient_norm", "parameter_norm")
    return [{name: line.get(name) for name in names} for line in read_lines(run)]


@pytest.fixture(scope="module")
def whole(compilation_cache, config_file, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "whole"
    train(config_file, run)
    return run


@pytest.mark.parametrize(
    ("kind", "steps_per_dispatch"),
    [
        ("resident", 3),
        ("stream", 16),
        pytest.param("resident", 1, marks=pytest.mark.slow),
        pytest.param("resident", 16, marks=pytest.mark.slow),  # The same run again.
        pytest.param("stream", 1, marks=pytest.mark.slow),
        pytest.param("stream", 3, marks=pytest.mark.slow),
    ],
)
def test_neither_the_input_nor_the_dispatch_changes_a_bit(whole, config_file, tmp_path, kind, steps_per_dispatch):
    words = ["--data.input", kind, "--training.steps-per-dispatch", str(steps_per_dispatch)]
    assert train(config_file, tmp_path / "run", *words) == read_summary(whole)["params_sha256"]
    assert measures(tmp_path / "run") == measures(whole)


@pytest.mark.slow
@pytest.mark.parametrize("num_chunks", [0, 1, 5])
def test_how_far_is_read_ahead_changes_no_bit(whole, config_file, tmp_path, monkeypatch, num_chunks):
    begun = []

    class Stream(feed.StreamFeed):
        def __init__(self, *args, **keywords):
            begun.append(num_chunks)
            super().__init__(*args, **keywords | {"num_chunks": num_chunks})

    monkeypatch.setattr(feed, "StreamFeed", Stream)
    words = ["--data.input", "stream", "--training.steps-per-dispatch", "3"]
    assert train(config_file, tmp_path / "run", *words) == read_summary(whole)["params_sha256"]
    assert begun == [num_chunks]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("resident", 16), ("stream", 3)),
        pytest.param(("stream", 3), ("resident", 1), marks=pytest.mark.slow),
        pytest.param(("stream", 1), ("stream", 16), marks=pytest.mark.slow),
    ],
)
def test_input_and_dispatch_may_change_in_the_midst_of_a_run(whole, config_file, tmp_path, monkeypatch, before, after):
    run = tmp_path / "run"

    def words(kind, count):
        return ["--data.input", kind, "--training.steps-per-dispatch", str(count)]

    if before[0] == "resident":
        with monkeypatch.context() as patch:
            interrupt_at(patch, 2)
            assert main(["train", str(config_file), "--out", str(run), *WORDS, *words(*before)]) == 130
        assert saved_steps(run) == [2]
    else:
        train(config_file, run, *words(*before))
        shutil.rmtree(run / "checkpoints" / str(TOTAL))
        (run / "summary.json").unlink()
        assert saved_steps(run) == [3]
    assert main(["train", "--resume", str(run), *words(*after)]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(whole)["params_sha256"]
    assert measures(run) == measures(whole)


@pytest.mark.slow
def test_another_order_of_the_data_is_noticed(whole, config_file, tmp_path):
    """So the tests above could fail."""
    assert (
        train(config_file, tmp_path / "run", "--data.input", "stream", "--seed", "1")
        != (read_summary(whole)["params_sha256"])
    )
