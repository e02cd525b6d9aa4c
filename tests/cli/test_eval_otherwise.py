"""A trained run, integrated by another scheme, on another grid, or with adaptive steps."""

import json

import numpy as np
import pytest
from tiny_run import read_summary

import ctt
from ctt.cli.main import main
from ctt.data import load_dataset


def evaluate(run, tmp_path, words):
    path = tmp_path / "eval.json"
    assert main(["eval", str(run), *words.split(), "--json", str(path)]) == 0
    return json.loads(path.read_text())


def test_nothing_given_is_the_discretisation_of_training(finished_run, tmp_path):
    values = evaluate(finished_run, tmp_path, "")
    assert (values["scheme"], values["substep"], values["steps"]) == ("lie", "euler", 2)
    assert values["loss"] == read_summary(finished_run)["test_loss"]


def test_another_scheme_is_another_function_of_the_same_weights(finished_run, tmp_path):
    values = evaluate(finished_run, tmp_path, "--splitting.scheme strang --splitting.substep midpoint")
    assert (values["scheme"], values["substep"]) == ("strang", "midpoint")
    difference = abs(values["loss"] - read_summary(finished_run)["test_loss"])
    assert 0 < difference < 0.5


def test_finer_grids_and_adaptive_steps_tend_to_the_same_loss(finished_run, tmp_path):
    fine = "--splitting.scheme strang --splitting.substep midpoint --splitting.steps 64"
    losses = [
        evaluate(finished_run, tmp_path, words)["loss"]
        for words in (fine, fine.replace("64", "32"), "--splitting.adaptive --splitting.rtol 1e-4")
    ]
    assert np.ptp(losses) < 1e-3


def test_adaptive_steps_are_reported(finished_run, tmp_path, capsys):
    values = evaluate(finished_run, tmp_path, "--splitting.adaptive")
    assert values["min_steps"] <= values["mean_steps"] <= values["max_steps"]
    assert values["min_steps"] >= 2  # One a knot at least.
    printed = capsys.readouterr().out
    assert f"adaptive steps an image: {values['mean_steps']:.1f} on average" in printed
    assert f"accuracy {values['accuracy']:.2%}" in printed


def test_tighter_tolerances_take_more_steps(finished_run, tmp_path):
    loose, tight = (
        evaluate(finished_run, tmp_path, f"--splitting.adaptive --splitting.rtol {rtol}")["mean_steps"]
        for rtol in ("1e-3", "1e-6")
    )
    assert tight > 1.5 * loose


def test_the_steps_of_an_image_do_not_depend_on_its_batch(finished_run, tmp_path):
    whole, parts = (
        evaluate(finished_run, tmp_path, f"--splitting.adaptive --batch-size {size}") for size in (360, 100)
    )
    assert (whole["mean_steps"], whole["accuracy"]) == (parts["mean_steps"], parts["accuracy"])


def test_a_solution_is_dense(finished_run):
    run = ctt.load_run(finished_run)
    images = load_dataset(run.config.data).test.images[:2]
    solution = run.model.solve(images, rtol=1e-5, dense=True)
    np.testing.assert_allclose(solution.evaluate(0.0), run.model.initial_state(images), atol=1e-5)
    np.testing.assert_allclose(solution.evaluate(run.config.splitting.horizon), solution.ys[-1], atol=1e-5)


REFUSED = {
    "other controls": ("--splitting.scheme strang_staggered", ["strang_staggered", "other controls"]),
    "steps that the knots do not divide": ("--splitting.steps 3", ["multiple of the run's 2 knots", "got 3"]),
    "no steps": ("--splitting.steps 0", ["splitting.steps", "got 0"]),
    "the literal layer": ("--splitting.scheme literal", ["literal", "no other run can become one"]),
    "a word with another scheme": ("--splitting.scheme strang --splitting.word attention", ["splitting.word", "both"]),
    "a file of the run": ("--json {run}/summary.json", ["--json", "must not overwrite"]),
    "steps and adaptive steps": ("--splitting.steps 4 --splitting.adaptive", ["not both"]),
    "no tolerance": ("--splitting.adaptive --splitting.rtol 0", ["splitting.rtol", "got 0"]),
    "a tolerance of nan": ("--splitting.adaptive --splitting.atol nan", ["splitting.atol", "nan"]),
    "too few steps allowed": ("--splitting.adaptive --splitting.max-steps 1", ["splitting.max_steps", "360 of 360"]),
    "no flow": ("--splitting.substep exact", ["exact", "attention has none"]),
    "a word without the scheme": ("--splitting.word attention", ["splitting.word", "Pass both"]),
    "half a word": ("--splitting.scheme word --splitting.word attention", ["feedforward", "sum to 1", "got 0"]),
}


@pytest.mark.parametrize(("words", "fragments"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_the_run_is_refused_in_one_sentence(finished_run, capsys, words, fragments):
    assert main(["eval", str(finished_run), *words.format(run=finished_run).split()]) == 2
    message = capsys.readouterr().err.strip()
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert "\n" not in message
