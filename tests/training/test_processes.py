"""Two processes that share a run by the real command line: they agree, one of them writes, and none waits for ever."""

import json
import signal
import time

import pytest
from device_runs import (
    HARSH,
    finish,
    free_port,
    losses,
    start_process,
    train_together,
    wait_for_step,
)
from tiny_run import TOTAL, read_summary, saved_steps

from ctt.cli.main import main

# See test_devices.py; of one process and of two 5e-7 was measured.
TOLERANCE = 1e-5

# A long run, so that what happens to it comes before its end.
LONG = ["--training.steps", "100000", "--training.eval-every", "50000", "--training.log-every", "1"]


@pytest.fixture(scope="module")
def one(compilation_cache, config_file, tmp_path_factory):
    """The run of one process."""
    run = tmp_path_factory.mktemp("runs") / "one"
    assert main(["train", str(config_file), "--out", str(run), *HARSH]) == 0
    return run


@pytest.fixture(scope="module")
def two(compilation_cache, config_file, tmp_path_factory):
    """The run of two processes, and how they ended."""
    run = tmp_path_factory.mktemp("runs") / "two"
    return run, train_together(str(config_file), "--out", str(run), *HARSH)


def own_words(text):
    """Return the lines of an output without those of the library that joins the processes."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("[Gloo]")]


def assert_close(run, other):
    for split in ("train", "val", "test"):
        assert losses(run, split) == pytest.approx(losses(other, split), rel=0, abs=TOLERANCE)
    ours, theirs = read_summary(run), read_summary(other)
    for name in ("train_loss", "val_loss", "test_loss", "ema_val_loss", "ema_test_loss"):
        assert ours[name] == pytest.approx(theirs[name], rel=0, abs=TOLERANCE)
    assert {key for key in ours if ours[key] is not None} == {key for key in theirs if theirs[key] is not None}


def test_two_processes_give_the_losses_of_one(one, two):
    run, ended = two
    assert [process.status for process in ended] == [0, 0], ended
    assert len(losses(run)) == TOTAL
    assert_close(run, one)


def test_the_first_process_alone_speaks_and_writes(two):
    run, (first, second) = two
    assert "Process 0 of 2" in first.out + first.err
    assert (own_words(second.out), own_words(second.err)) == ([], [])
    assert saved_steps(run) == [3, 6]
    assert json.loads((run / "manifest.json").read_text())["mesh"] == {"data": 2, "fsdp": 1}
    devices = json.loads((run / "config.json").read_text())["devices"]
    assert [devices[name] for name in ("coordinator", "num_processes", "process_id")] == [None] * 3
    assert not list(run.rglob("*.partial"))
    assert len(list((run / "tensorboard").iterdir())) == 1


def test_a_run_of_two_processes_is_measured_by_one(two, tmp_path):
    run, _ = two
    assert main(["eval", str(run), "--json", str(tmp_path / "eval.json")]) == 0
    assert json.loads((tmp_path / "eval.json").read_text())["accuracy"] == read_summary(run)["test_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_devices", "words"),
    [
        (1, ["--data.input", "stream"]),
        (1, ["--devices.fsdp", "2"]),
        (4, ["--data.input", "stream", "--devices.fsdp", "4", "--training.steps-per-dispatch", "3"]),
        (4, ["--devices.fsdp", "8"]),
    ],
    ids=["stream", "cut_across", "stream_and_cut_within", "cut_among_all"],
)
def test_streams_and_cut_weights_change_nothing(one, config_file, tmp_path, num_devices, words):
    run = tmp_path / "run"
    ended = train_together(str(config_file), "--out", str(run), *HARSH, *words, num_devices=num_devices)
    assert [process.status for process in ended] == [0, 0], ended
    assert_close(run, one)


@pytest.mark.slow
def test_a_signal_to_one_stops_both_at_one_step_and_both_or_one_go_on(two, one, config_file, tmp_path):
    run, port = tmp_path / "run", free_port()
    words = ["train", str(config_file), "--out", str(run), *LONG]
    processes = [start_process(words, process_id=index, port=port) for index in range(2)]
    wait_for_step(processes, run, 2)
    processes[1].send_signal(signal.SIGTERM)
    ended = finish(processes)
    assert [process.status for process in ended] == [143, 143], ended
    step = saved_steps(run)[-1]
    assert all(f"Interrupted at step {step} of 100000" in process.err for process in ended)
    port = free_port()
    auto = ["train", str(config_file), "--resume", "auto", "--out", str(run), *LONG]
    processes = [start_process(auto, process_id=index, port=port) for index in range(2)]
    wait_for_step(processes, run, step + 3)
    processes[0].send_signal(signal.SIGINT)
    ended = finish(processes)
    assert [process.status for process in ended] == [130, 130], ended
    assert "Not bit-equal" not in ended[0].out + ended[0].err
    assert saved_steps(run)[-1] >= step + 3
    steps = [line["step"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]
    assert steps == list(range(1, saved_steps(run)[-1] + 1))


@pytest.mark.slow
def test_a_run_of_two_goes_on_bit_equal_in_two_and_close_in_one(two, one, tmp_path, capsys):
    import shutil

    def copy(name):
        run = shutil.copytree(two[0], tmp_path / name)
        shutil.rmtree(run / "checkpoints" / "6")
        (run / "summary.json").unlink()
        return run

    run = copy("two")
    ended = train_together("--resume", str(run))
    assert [process.status for process in ended] == [0, 0], ended
    assert read_summary(run)["params_sha256"] == read_summary(two[0])["params_sha256"]
    run = copy("one")
    capsys.readouterr()
    assert main(["train", "--resume", str(run)]) == 0
    captured = capsys.readouterr()
    assert "mesh: data 2 x fsdp 1 then, data 1 x fsdp 1 now" in captured.out + captured.err
    assert_close(run, one)


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_both(compilation_cache, config_file, tmp_path):
    ended = train_together(str(config_file), "--out", str(tmp_path / "run"), "--optimizer.learning-rate", "1e30")
    assert [process.status for process in ended] == [1, 1], ended
    assert all("not finite at step 3" in process.err for process in ended)


@pytest.mark.slow
def test_several_seeds_are_written_once(compilation_cache, config_file, tmp_path):
    run = tmp_path / "group"
    ended = train_together(str(config_file), "--out", str(run), "--seeds", "2")
    assert [process.status for process in ended] == [0, 0], ended
    assert own_words(ended[1].out) == []
    summary = read_summary(run)
    assert [line["seed"] for line in summary["runs"]] == [0, 1]
    assert len(losses(run / "seed-1")) == TOTAL / 2


# What goes wrong.


@pytest.mark.parametrize("present", [0, 1])
def test_a_host_that_never_comes_ends_the_wait_with_a_message(config_file, tmp_path, present):
    words = ["train", str(config_file), "--out", str(tmp_path / "run")]
    begin = time.monotonic()
    (ended,) = finish([start_process(words, process_id=present, port=free_port(), timeout=5)], timeout=120)
    assert time.monotonic() - begin >= 5
    (line,) = own_words(ended.err)
    assert ended.status == 2
    assert "were not found within 5 s" in line
    assert "--devices.distributed off" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("second", "field"), [(["--seed", "1"], "seed"), (["--model.width", "16"], "model.width")], ids=["seed", "width"]
)
def test_a_host_with_another_config_is_refused(config_file, tmp_path, second, field):
    ended = train_together(str(config_file), "--out", str(tmp_path / "run"), second=second)
    assert [process.status for process in ended] == [2, 2], ended
    for process in ended:
        (line,) = own_words(process.err)
        assert f"they differ in: {field}." in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("dying", [0, 1])
def test_a_process_that_dies_takes_the_other_with_it(compilation_cache, config_file, tmp_path, dying):
    run, port = tmp_path / "run", free_port()
    words = ["train", str(config_file), "--out", str(run), *LONG]
    processes = [start_process(words, process_id=index, port=port) for index in range(2)]
    wait_for_step(processes, run, 2)
    processes[dying].kill()
    begin = time.monotonic()
    survivor = finish(processes)[1 - dying]
    assert time.monotonic() - begin < 60
    if dying == 0:  # Jax may end a process whose coordinator has gone before it can speak.
        assert survivor.status != 0
        return
    (line,) = own_words(survivor.err)
    assert survivor.status == 2
    assert "Another process of this run ended" in line


@pytest.mark.slow
def test_a_process_that_fails_alone_does_not_keep_the_other_waiting(compilation_cache, config_file, tmp_path):
    """The first process alone writes, and alone learns that it cannot."""
    run, port = tmp_path / "run", free_port()
    words = ["train", str(config_file), "--out", str(run), *LONG, "--training.checkpoint-every", "50"]
    processes = [start_process(words, process_id=index, port=port) for index in range(2)]
    wait_for_step(processes, run, 2)
    (run / "checkpoints").write_text("in the way")
    begin = time.monotonic()
    ended = finish(processes)
    assert time.monotonic() - begin < 90
    assert all(process.status != 0 for process in ended), ended
    assert "cannot be written" in ended[0].err
