"""Which checkpoints stay, and that each of them is what was measured when it was saved."""

import json

import numpy as np
import pytest
from tiny_run import interrupt_at, read_lines, read_summary, saved_steps

import ctt
from ctt.cli.main import main
from ctt.config.error import InputError
from ctt.training.checkpoint import CheckpointStore
from ctt.training.digest import tree_sha256
from ctt.training.evaluate import split_model
from ctt.training.state import weights_record

EVERY_STEP = ("--training.eval-every", "1", "--training.checkpoint-every", "1")
UNSTEADY = (
    "--seed",
    "2",
    "--optimizer.learning-rate",
    "0.2",
    "--optimizer.warmup-fraction",
    "0",
    "--optimizer.clip-norm",
    "None",
)
AVERAGED = (*EVERY_STEP, *UNSTEADY, "--optimizer.ema-decay", "0.9")


@pytest.fixture(scope="module")
def train(compilation_cache, config_file):
    """Return a function that trains the tiny run with more words."""

    def call(out, *words):
        return main(["train", str(config_file), "--out", str(out), *words])

    return call


@pytest.fixture(scope="module")
def averaged(train, tmp_path_factory):
    """A run with a moving average that kept all of its checkpoints; tests must not change it."""
    out = tmp_path_factory.mktemp("runs") / "averaged"
    assert train(out, *AVERAGED, "--training.keep-checkpoints", "9") == 0
    return out


@pytest.fixture(scope="module")
def free(train, tmp_path_factory):
    """A run of the rule schedule_free, of which the average is measured; tests must not change it."""
    out = tmp_path_factory.mktemp("runs") / "free"
    words = ("--optimizer.name", "schedule_free", "--optimizer.schedule", "constant", *EVERY_STEP)
    assert train(out, *words, "--training.keep-checkpoints", "1") == 0
    return out


def _on_val(run):
    return {line["step"]: line for line in read_lines(run) if line["split"] == "val"}


def _find_best(run, name="accuracy"):
    """Return the first step of the largest accuracy."""
    lines = _on_val(run)
    return min(lines, key=lambda step: (-lines[step][name], step))


def _evaluate(run, path, *words):
    assert main(["eval", str(run), "--split", "val", "--json", str(path / "eval.json"), *words]) == 0
    return json.loads((path / "eval.json").read_text())


# The store by itself.


def _fill(folder, scores, keep, *, first=1):
    store = CheckpointStore(folder, run_id="a run", keep=keep)
    for step, score in enumerate(scores, first):
        store.save(step, {"weights": np.full(3, step, np.float32)}, {}, score=score)
    store.wait()
    steps, best = store.steps(), store.best_step()
    store.close()
    return steps, best


@pytest.mark.parametrize(
    ("scores", "keep", "kept", "best"),
    [
        ([0.5, 0.9, 0.1, 0.2, 0.3], 2, [2, 4, 5], 2),
        ([0.5, 0.1, 0.2, 0.9, 0.3], 2, [4, 5], 4),
        ([0.9, 0.1, 0.9, 0.2, 0.9], 1, [1, 5], 1),
        ([None, 0.2, None, None, None], 2, [2, 4, 5], 2),
        ([None, None, None], 1, [3], None),
        ([0.0, None, None], 1, [1, 3], 1),
    ],
)
def test_the_newest_and_the_first_of_the_best_stay(tmp_path, scores, keep, kept, best):
    assert _fill(tmp_path / "checkpoints", scores, keep) == (kept, best)


def test_the_best_of_an_earlier_session_stays_until_a_better_one_comes(tmp_path):
    folder = tmp_path / "checkpoints"
    assert _fill(folder, [0.1, 0.8, 0.2], 1) == ([2, 3], 2)
    assert _fill(folder, [0.3, 0.8], 1, first=4) == ([2, 5], 2)
    assert _fill(folder, [0.81, 0.4], 1, first=6) == ([6, 7], 6)


def test_fewer_are_kept_when_the_number_becomes_smaller(tmp_path):
    folder = tmp_path / "checkpoints"
    assert _fill(folder, [0.9, 0.1, 0.2, 0.3], 4)[0] == [1, 2, 3, 4]
    assert _fill(folder, [0.4], 2, first=5)[0] == [1, 4, 5]


# Runs.


@pytest.mark.parametrize("keep", [1, 2])
def test_an_interrupted_run_keeps_the_newest_and_the_best_of_all_sessions(train, averaged, tmp_path, monkeypatch, keep):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 4)
        assert train(run, *AVERAGED, "--training.keep-checkpoints", str(keep)) == 130
    assert main(["train", "--resume", str(run)]) == 0
    best = _find_best(averaged, "ema_accuracy")
    assert saved_steps(run) == sorted({best, *range(7 - keep, 7)})
    assert read_summary(run)["params_sha256"] == read_summary(averaged)["params_sha256"]


def test_the_accuracies_of_this_run_tell_its_steps_apart(averaged):
    """What is tested here needs a best step that is not the last, nor the same of both weights."""
    best = {name: _find_best(averaged, name) for name in ("accuracy", "ema_accuracy")}
    assert best["accuracy"] != best["ema_accuracy"]
    assert best["ema_accuracy"] < 5


@pytest.mark.parametrize("weights", ["last", "ema"])
@pytest.mark.parametrize("checkpoint", ["best", "last", "2"])
def test_eval_measures_what_was_measured_when_the_checkpoint_was_saved(averaged, tmp_path, checkpoint, weights):
    step = {"best": _find_best(averaged, "ema_accuracy"), "last": 6, "2": 2}[checkpoint]
    values = _evaluate(averaged, tmp_path, "--checkpoint", checkpoint, "--weights", weights)
    line, prefix = _on_val(averaged)[step], "" if weights == "last" else "ema_"
    assert (values["step"], values["checkpoint"], values["weights"]) == (step, checkpoint, weights)
    assert values["accuracy"] == line[f"{prefix}accuracy"]
    assert values["loss"] == pytest.approx(line[f"{prefix}loss"], rel=1e-6)


def test_without_an_average_the_best_is_that_of_the_last_weights(train, tmp_path):
    run = tmp_path / "run"
    assert train(run, *EVERY_STEP, *UNSTEADY, "--training.keep-checkpoints", "1") == 0
    best = _find_best(run)
    assert best != 6
    assert saved_steps(run) == [best, 6]
    assert _evaluate(run, tmp_path, "--checkpoint", "best")["accuracy"] == _on_val(run)[best]["accuracy"]


def test_schedule_free_is_evaluated_and_kept_by_the_average_of_its_steps(free, tmp_path):
    summary, best = read_summary(free), _find_best(free)
    values = _evaluate(free, tmp_path)
    assert values["accuracy"] == summary["val_accuracy"]
    assert values["loss"] == pytest.approx(summary["val_loss"], rel=1e-6)
    assert saved_steps(free) == sorted({best, 6})
    assert _evaluate(free, tmp_path, "--checkpoint", "best")["accuracy"] == _on_val(free)[best]["accuracy"]


def test_load_run_gives_the_weights_of_a_checkpoint(averaged):
    def digest(**which):
        run = ctt.load_run(averaged, **which)
        return run.step, tree_sha256(weights_record(split_model(run.model)[1]))

    best = _find_best(averaged, "ema_accuracy")
    last, found = digest(), digest(checkpoint="best")
    assert last == (6, read_summary(averaged)["params_sha256"])
    assert found == digest(checkpoint=best)
    average = digest(checkpoint=str(best), weights="ema")
    assert (average[0], len({last[1], found[1], average[1]})) == (best, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--checkpoint", "7"), "holds no checkpoint of step 7, but of 1, 2, 3, 4, 5, 6."),
        (("--checkpoint", "newest"), "must be last, best or the step of one, got 'newest'"),
    ],
)
def test_an_unknown_checkpoint_is_refused(averaged, capsys, words, message):
    assert main(["eval", str(averaged), *words]) == 2
    errors = capsys.readouterr().err.strip()
    assert (message in errors, len(errors.splitlines())) == (True, 1), errors


def test_an_average_that_there_is_not_is_refused(finished_run, capsys):
    assert main(["eval", str(finished_run), "--weights", "ema"]) == 2
    assert "was trained without optimizer.ema_decay" in capsys.readouterr().err
    with pytest.raises(InputError, match="no moving average"):
        ctt.load_run(finished_run, weights="ema")
