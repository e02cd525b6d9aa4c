"""An interrupted run that is resumed ends bit for bit where the undisturbed one does."""

import shutil
import signal
import subprocess
import sys
import time

import pytest
from tiny_run import (
    TOTAL,
    compilation_environment,
    hash_tree,
    interrupt_at,
    read_lines,
    read_summary,
    saved_steps,
)

from ctt.cli.main import main

TIMES = ("wall_seconds", "compile_seconds", "images_per_second")


@pytest.fixture(scope="module")
def train_run(compilation_cache, config_file, tmp_path_factory):
    """Train the tiny run with more words, once for each set of words; tests must not change it."""
    runs = {}

    def train(*words):
        if words not in runs:
            runs[words] = tmp_path_factory.mktemp("runs") / "whole"
            assert main(["train", str(config_file), "--out", str(runs[words]), *words]) == 0
        return runs[words]

    return train


@pytest.fixture
def interrupt_run(compilation_cache, config_file, tmp_path, monkeypatch):
    """Train the tiny run with more words until a step and return its status and folder."""

    def interrupt(step, *words, signum=signal.SIGINT):
        with monkeypatch.context() as patch:
            interrupt_at(patch, step, signum)
            return main(["train", str(config_file), "--out", str(tmp_path / "run"), *words]), tmp_path / "run"

    return interrupt


@pytest.fixture(scope="module")
def resume_run(compilation_cache, config_file, tmp_path_factory):
    """Train the tiny run until a step and resume it, once for each; tests must not change it."""
    runs = {}

    def resume(step, *words):
        if (step, words) not in runs:
            run = runs[step, words] = tmp_path_factory.mktemp("runs") / "resumed"
            with pytest.MonkeyPatch.context() as patch:
                interrupt_at(patch, step)
                assert main(["train", str(config_file), "--out", str(run), *words]) == 130
            assert saved_steps(run)[-1] == step
            assert main(["train", "--resume", str(run)]) == 0
        return runs[step, words]

    return resume


def _evaluations(run):
    return [line for line in read_lines(run) if line["split"] != "train"]


@pytest.mark.parametrize(("step", "dropout"), [(1, "0.1"), (3, "0.1"), (5, "0.1"), (1, "0.0"), (4, "0.0")])
def test_a_resumed_run_ends_bit_equal_to_the_undisturbed_one(train_run, resume_run, step, dropout):
    words = ("--model.dropout", dropout)
    assert read_summary(resume_run(step, *words))["params_sha256"] == read_summary(train_run(*words))["params_sha256"]


@pytest.mark.parametrize("step", [1, 3, 5])
def test_the_evaluations_of_a_resumed_run_are_those_of_the_undisturbed_one(train_run, resume_run, step):
    words = ("--model.dropout", "0.1")
    assert _evaluations(resume_run(step, *words)) == _evaluations(train_run(*words))


@pytest.mark.parametrize(
    "step",
    [1, 3, 5],
)
def test_the_summary_of_a_resumed_run_is_that_of_the_undisturbed_one_but_for_times(train_run, resume_run, step):
    words = ("--model.dropout", "0.1")
    resumed, whole = read_summary(resume_run(step, *words)), read_summary(train_run(*words))
    assert {k: v for k, v in resumed.items() if k not in TIMES} == {k: v for k, v in whole.items() if k not in TIMES}


@pytest.mark.slow
def test_a_run_interrupted_again_and_again_ends_bit_equal(train_run, interrupt_run, monkeypatch):
    _, run = interrupt_run(1)
    for step in (3, 4):
        with monkeypatch.context() as patch:
            interrupt_at(patch, step)
            assert main(["train", "--resume", str(run)]) == 130
    assert main(["train", "--resume", str(run)]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(train_run())["params_sha256"]


def test_how_often_a_run_reports_may_change_on_resume_with_the_config_file(train_run, interrupt_run, config_file):
    _, run = interrupt_run(2)
    fields = ["log-every", "eval-every", "checkpoint-every", "keep-checkpoints"]
    assert (
        main(["train", str(config_file), "--resume", str(run), *(w for f in fields for w in (f"--training.{f}", "1"))])
        == 0
    )
    assert read_summary(run)["params_sha256"] == read_summary(train_run())["params_sha256"]


def test_a_signal_during_the_last_step_lets_the_run_finish(train_run, interrupt_run):
    status, run = interrupt_run(TOTAL)
    assert (status, read_summary(run)["params_sha256"]) == (0, read_summary(train_run())["params_sha256"])


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_has_the_status_of_its_signal(interrupt_run, signum, status):
    assert interrupt_run(2, signum=signum)[0] == status


def test_an_interruption_says_where_and_how_to_go_on(interrupt_run, capsys):
    _, run = interrupt_run(2)
    message = capsys.readouterr().err.strip()
    assert "\n" not in message
    assert f"step 2 of {TOTAL}" in message
    assert f"ctt train --resume {run}" in message


def test_an_interrupted_run_has_no_summary(interrupt_run):
    _, run = interrupt_run(2)
    assert not (run / "summary.json").exists()


def test_a_run_that_died_before_its_first_checkpoint_starts_again(train_run, interrupt_run):
    _, run = interrupt_run(4)
    shutil.rmtree(run / "checkpoints")
    assert main(["train", "--resume", str(run)]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(train_run())["params_sha256"]
    assert _evaluations(run) == _evaluations(train_run())


def test_lines_after_the_checkpoint_and_half_a_line_are_dropped_on_resume(train_run, interrupt_run):
    _, run = interrupt_run(4)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "split": "val", "loss": 1.0, "accuracy": 0.5}\n{"step": 6, "spl')
    main(["train", "--resume", str(run)])
    assert _evaluations(run) == _evaluations(train_run())


def test_resuming_a_finished_run_changes_nothing(train_run, tmp_path):
    run = shutil.copytree(train_run(), tmp_path / "run")
    before = hash_tree(run)
    assert main(["train", "--resume", str(run)]) == 0
    assert hash_tree(run) == before


def test_a_finished_run_that_lost_its_summary_gets_it_back(train_run, tmp_path):
    run = shutil.copytree(train_run(), tmp_path / "run")
    (run / "summary.json").unlink()
    assert main(["train", "--resume", str(run)]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(train_run())["params_sha256"]


def test_the_same_seed_gives_the_same_weights(train_run):
    again = train_run("--training.log-every", "3")
    assert read_summary(again)["params_sha256"] == read_summary(train_run())["params_sha256"]


def test_another_seed_gives_other_weights(train_run):
    other = train_run("--seed", "1")
    assert read_summary(other)["params_sha256"] != read_summary(train_run())["params_sha256"]


def test_a_run_of_other_data_is_not_resumed(interrupt_run, capsys, monkeypatch):
    import dataclasses

    import ctt.training.loading as loading

    _, run = interrupt_run(2)
    capsys.readouterr()
    load = loading.load_dataset
    monkeypatch.setattr(loading, "load_dataset", lambda *a: dataclasses.replace(load(*a), fingerprint="0" * 64))
    assert main(["train", "--resume", str(run)]) == 2
    assert "fingerprint" in capsys.readouterr().err


# Real signals to a real process.


def _start(config_file, run, *words):
    command = [sys.executable, "-m", "ctt", "train", str(config_file), "--out", str(run), *words]
    return subprocess.Popen(
        command, env=compilation_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _wait_for_step(process, run, step):
    for _ in range(2400):
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        path = run / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        if any(f'"step": {step},' in line for line in lines):
            return
        time.sleep(0.05)
    raise AssertionError("the run did not get on")


# A long run, so that the signal comes before its end.
LONG = ("--training.steps", "100000", "--training.eval-every", "500")


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_real_signal_stops_a_process_after_a_checkpoint(compilation_cache, config_file, tmp_path, signum, status):
    run = tmp_path / "run"
    process = _start(config_file, run, *LONG)
    _wait_for_step(process, run, 2)
    process.send_signal(signum)
    _, message = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in message) == (status, False)
    assert f"step {saved_steps(run)[-1]} of 100000" in message


@pytest.mark.parametrize("step", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.slow)])
def test_a_killed_run_resumes_bit_equal(train_run, config_file, tmp_path, step):
    run, words = tmp_path / "run", ("--training.log-every", "1")
    process = _start(config_file, run, *words)
    _wait_for_step(process, run, step)
    process.kill()
    process.communicate(timeout=60)
    assert main(["train", "--resume", str(run), *words]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(train_run())["params_sha256"]
