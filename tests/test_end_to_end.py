"""Training from the command line to the accuracy that the recipes promise."""

import json
import signal

import pytest

from ctt.cli.main import main

# 60 steps of a narrow model: seconds of training, most of them of compilation.
SHORT = ["--model.patch-size", "4", "--model.width", "16", "--model.feedforward-width", "32", "--splitting.steps", "2"]
SHORT += ["--training.steps", "60", "--training.log-every", "10", "--optimizer.learning-rate", "1e-2"]


@pytest.fixture(scope="module")
def train_run(tmp_path_factory):
    """Train the recipe of the digits with more words and return the folder."""

    def train(*words):
        handler = signal.getsignal(signal.SIGTERM)
        run = tmp_path_factory.mktemp("runs") / "run"
        assert main(["train", "configs/digits_vit.py", "--out", str(run), *words]) == 0
        signal.signal(signal.SIGTERM, handler)
        return run

    return train


@pytest.fixture(scope="module")
def short_run(train_run):
    return train_run(*SHORT)


def _summary(run):
    return json.loads((run / "summary.json").read_text())


def test_a_short_training_recognises_most_digits(short_run):
    assert _summary(short_run)["test_accuracy"] > 0.6


def test_the_loss_of_a_short_training_falls(short_run):
    lines = [json.loads(line) for line in (short_run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["split"] == "train"]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["lie", "strang"])
def test_the_recipe_of_the_digits_reaches_its_accuracy(train_run, scheme):
    assert _summary(train_run("--splitting.scheme", scheme))["test_accuracy"] >= 0.97
