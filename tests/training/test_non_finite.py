"""A loss that is no number stops the run with status 1, and the last good checkpoint stays."""

import json
import math
import re
import shutil

import pytest
from tiny_run import read_lines, saved_steps

import ctt
from ctt.cli.main import main

DIVERGENT = ["--optimizer.learning-rate", "1e30", "--optimizer.clip-norm", "None", "--optimizer.warmup-fraction", "0.5"]
"""Warm-up from 0: the first update changes nothing, the second breaks every weight."""


@pytest.fixture(scope="module")
def diverged(compilation_cache, config_file, tmp_path_factory):
    """Status and folder of a run that saves after each step and diverges."""
    run = tmp_path_factory.mktemp("runs") / "diverged"
    words = [
        *DIVERGENT,
        "--training.checkpoint-every",
        "1",
        "--training.keep-checkpoints",
        "9",
        "--training.log-every",
        "1",
    ]
    return main(["train", str(config_file), "--out", str(run), *words]), run


def test_a_non_finite_loss_has_status_1(diverged):
    assert diverged[0] == 1


def test_a_non_finite_loss_names_its_steps_and_the_way_out(compilation_cache, config_file, tmp_path, capsys):
    words = [*DIVERGENT, "--training.eval-every", "6", "--training.log-every", "6"]
    assert main(["train", str(config_file), "--out", str(tmp_path / "run"), *words]) == 1
    message = capsys.readouterr().err.strip()
    assert re.search(r"not finite at step 2 \(seen between steps \d and \d\); no checkpoint was saved yet", message)
    assert "optimizer.learning_rate" in message


def test_a_diverged_run_keeps_a_checkpoint(diverged):
    assert 1 in saved_steps(diverged[1])


def test_a_diverged_run_has_no_summary(diverged):
    assert not (diverged[1] / "summary.json").exists()


def test_the_checkpoint_before_the_divergence_can_be_evaluated(diverged, tmp_path):
    run = shutil.copytree(diverged[1], tmp_path / "run")
    for step in saved_steps(run)[1:]:
        shutil.rmtree(run / "checkpoints" / str(step))
    assert main(["eval", str(run), "--json", str(tmp_path / "eval.json")]) == 0
    assert math.isfinite(json.loads((tmp_path / "eval.json").read_text())["loss"])


def test_the_newest_checkpoint_of_a_diverged_run_has_a_finite_loss(diverged, tmp_path):
    assert main(["eval", str(diverged[1]), "--json", str(tmp_path / "eval.json")]) == 0
    assert math.isfinite(json.loads((tmp_path / "eval.json").read_text())["loss"])


@pytest.mark.slow
def test_a_diverged_run_resumes_from_its_checkpoint_and_diverges_again(diverged, tmp_path):
    run = shutil.copytree(diverged[1], tmp_path / "run")
    assert main(["train", "--resume", str(run)]) == 1


def test_the_metrics_of_a_diverged_run_are_finite(diverged):
    lines = read_lines(diverged[1])
    assert lines
    assert all(math.isfinite(value) for line in lines for key, value in line.items() if key != "split")


def test_weights_that_break_at_the_last_step_are_no_success(compilation_cache, config_file, tmp_path):
    words = ["--optimizer.learning-rate", "1e30", "--optimizer.clip-norm", "None", "--training.steps", "1"]
    assert main(["train", str(config_file), "--out", str(tmp_path / "run"), *words]) == 1


def test_a_library_user_gets_a_non_finite_error(compilation_cache, config_file, tmp_path):
    from ctt.training.loop import NonFiniteError, train

    config = ctt.load_config(config_file, overrides=DIVERGENT)
    with pytest.raises(NonFiniteError, match="not finite"):
        train(config, out=tmp_path / "run")
