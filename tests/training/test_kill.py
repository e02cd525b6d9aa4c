"""A run that is killed again and again, in the middle of saves too, ends bit for bit where the undisturbed one does."""

import random
import signal

import pytest
from child_run import CONFIG, Striker, command, finish, schedule, start
from tiny_run import read_lines, read_summary, saved_steps

from ctt.cli.main import main

STREAM = ("--data.input", "stream")


@pytest.fixture(scope="module")
def rich_config(tmp_path_factory):
    path = tmp_path_factory.mktemp("configs") / "rich.py"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def undisturbed(rich_config, tmp_path_factory):
    """Return the folder of the run that nothing happens to, by more words."""
    runs = {}

    def train(*words):
        if words not in runs:
            runs[words] = tmp_path_factory.mktemp("runs") / "whole"
            assert finish(command(rich_config, runs[words], *words))[0] == 0
        return runs[words]

    return train


def _evaluations(run):
    return [line for line in read_lines(run) if line["split"] != "train"]


def _strike_again_and_again(config, run, moments, *words, seed, signum=signal.SIGKILL):
    """Train a run that is struck at moments, each time begun and resumed by the same command; return what was hit."""
    generator = random.Random(seed)
    striker = Striker(run, generator)
    for moment in moments:
        process = start(command(config, run, *words))
        errors = striker.strike(process, moment, signum)
        assert "Traceback" not in errors, errors
        # Python dies of SIGTERM by itself until the command is there to handle it; a shell makes 143 of that too.
        is_early = moment == "start" and process.returncode == -signum
        assert is_early or process.returncode == (143 if signum == signal.SIGTERM else -signum), errors
    status, errors = finish(command(config, run, *words))
    assert status == 0, errors
    assert "Traceback" not in errors, errors
    assert not (run / "damaged_checkpoints").exists()
    print(
        f"seed {seed}, {signum.name}: " + "; ".join(f"{count} x {hit}" for hit, count in sorted(striker.hits.items()))
    )
    return striker.hits


def _assert_equal_end(run, whole):
    assert read_summary(run)["params_sha256"] == read_summary(whole)["params_sha256"]
    assert _evaluations(run) == _evaluations(whole)
    assert saved_steps(run) == saved_steps(whole)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), STREAM], ids=["resident", "stream"])
def test_a_run_killed_twenty_times_ends_as_the_undisturbed_one(rich_config, undisturbed, tmp_path, words):
    whole = undisturbed()
    run, seed = tmp_path / "run", 20 + len(words)
    moments = [*schedule(random.Random(seed), 19), "end"]
    hits = _strike_again_and_again(rich_config, run, moments, *words, seed=seed)
    assert sum(hits.values()) == 20
    assert sum(count for hit, count in hits.items() if "half written" in hit) >= 3
    _assert_equal_end(run, whole)


@pytest.mark.slow
def test_a_run_terminated_again_and_again_ends_as_the_undisturbed_one(rich_config, undisturbed, tmp_path):
    whole = undisturbed()
    moments = schedule(random.Random(40), 10)
    _strike_again_and_again(rich_config, tmp_path / "run", moments, seed=40, signum=signal.SIGTERM)
    _assert_equal_end(tmp_path / "run", whole)


@pytest.mark.slow
def test_a_group_killed_again_and_again_ends_as_the_undisturbed_one(rich_config, undisturbed, tmp_path):
    words = ("--seeds", "2", "--training.steps", "30")
    whole = undisturbed(*words)
    moments = ["start", "save", "step", "save", "compile", "evaluation", "save", "end"]
    _strike_again_and_again(rich_config, tmp_path / "run", moments, *words, seed=50)
    ends = [[run["params_sha256"] for run in read_summary(folder)["runs"]] for folder in (tmp_path / "run", whole)]
    assert ends[0] == ends[1]
    assert len(set(ends[0])) == 2


def test_a_run_killed_in_saves_ends_as_the_undisturbed_one(finished_run, config_file, tmp_path):
    run, words = tmp_path / "run", ("--training.checkpoint-every", "1")
    striker = Striker(run, random.Random(0))
    for _ in range(2):
        striker.strike(start(command(config_file, run, *words)), "save")
    assert striker.hits["save, a checkpoint half written"] >= 1
    assert main(["train", str(config_file), "--out", str(run), "--resume", "auto", *words]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(finished_run)["params_sha256"]
    assert _evaluations(run) == _evaluations(finished_run)
    assert not list(run.rglob("*.orbax-checkpoint-tmp*"))
