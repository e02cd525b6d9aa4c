"""A CvT with batch normalisation as a run: its averages are saved, resumed and used; its weights begin other runs."""

import shutil

import jax
import numpy as np
import pytest
from flax import nnx
from tiny_run import interrupt_at, read_summary, saved_steps

from ctt.cli.main import main
from ctt.training.run import load_run

CONFIG = """
from ctt.config import AugmentationConfig, Config, ModelConfig, StagesConfig, SplittingConfig, TrainingConfig

def get_config():
    stages = StagesConfig(
        widths=(4, 8), num_heads=(1, 2), feedforward_widths=(4, 8), steps=(1, 2), kernels=(3, 3), strides=(2, 2),
        paddings=(1, 1), projection_kernels=(3, 3), key_value_strides=(2, 1), key_value_paddings=(1, 1),
    )
    return Config(
        augmentation=AugmentationConfig(flip=True),
        model=ModelConfig(name="cvt", stages=stages, activation="relu", convolution_normalization="batch"),
        training=TrainingConfig(steps=4, batch_size=16, log_every=2, eval_every=2, certify=False),
    )
"""


@pytest.fixture(scope="module")
def cvt_config(tmp_path_factory):
    path = tmp_path_factory.mktemp("configs") / "cvt.py"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def cvt_run(compilation_cache, cvt_config, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "cvt"
    assert main(["train", str(cvt_config), "--out", str(out)]) == 0
    return out


def averages(run):
    return jax.tree.leaves(nnx.state(load_run(run).model, nnx.BatchStat))


def test_the_averages_are_saved_with_the_weights(cvt_run):
    assert all(np.all(np.isfinite(leaf)) for leaf in averages(cvt_run))
    assert sum(np.abs(leaf).max() not in (0, 1) for leaf in averages(cvt_run)) == len(averages(cvt_run))


def test_a_loaded_run_measures_what_the_summary_says(cvt_run, tmp_path):
    assert main(["eval", str(cvt_run), "--json", str(tmp_path / "eval.json")]) == 0
    import json

    assert json.loads((tmp_path / "eval.json").read_text())["accuracy"] == read_summary(cvt_run)["test_accuracy"]


def test_a_resumed_run_has_the_same_averages(cvt_run, cvt_config, tmp_path, monkeypatch):
    out = tmp_path / "resumed"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        assert main(["train", str(cvt_config), "--out", str(out)]) == 130
    assert main(["train", "--resume", str(out)]) == 0
    assert read_summary(out)["params_sha256"] == read_summary(cvt_run)["params_sha256"]
    for received, expected in zip(averages(out), averages(cvt_run), strict=True):
        np.testing.assert_array_equal(received, expected)


def test_the_equation_is_integrated_otherwise_with_the_same_averages(cvt_run):
    words = ["--splitting.scheme", "strang", "--splitting.substep", "midpoint", "--splitting.steps", "6"]
    assert main(["eval", str(cvt_run), *words]) == 0


def test_what_batch_normalisation_does_not_train_with_is_refused(cvt_config, tmp_path, capsys):
    assert main(["train", str(cvt_config), "--out", str(tmp_path / "run"), "--splitting.substep", "midpoint"]) == 2
    assert "cannot be trained with `model.convolution_normalization` batch" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_begins_with_the_weights_of_another(cvt_run, tmp_path, capsys):
    out = tmp_path / "tuned"
    words = ["--optimizer.learning-rate", "1e-12", "--optimizer.weight-decay", "0", "--training.steps", "1"]
    assert main(["train", "--init", str(cvt_run), "--out", str(out), *words]) == 0
    one, other = (jax.tree.leaves(nnx.state(load_run(run).model, nnx.Param)) for run in (out, cvt_run))
    for received, expected in zip(one, other, strict=True):
        np.testing.assert_allclose(received, expected, rtol=0, atol=1e-9)
    assert load_run(out).manifest["init"]["run_id"] == load_run(cvt_run).manifest["run_id"]


def test_it_is_resumed_with_them_from_its_first_step(cvt_run, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole", tmp_path / "resumed"
    words = ["--training.steps", "2", "--training.eval-every", "2"]
    assert main(["train", "--init", str(cvt_run), "--out", str(whole), *words]) == 0
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1)
        assert main(["train", "--init", str(cvt_run), "--out", str(out), *words]) == 130
    shutil.rmtree(out / "checkpoints" / "1")
    assert saved_steps(out) == [0]
    assert main(["train", "--resume", str(out)]) == 0
    assert read_summary(out)["params_sha256"] == read_summary(whole)["params_sha256"]
    shutil.rmtree(out / "checkpoints")
    assert main(["train", "--resume", str(out)]) == 2


def test_resume_and_init_exclude_each_other(cvt_run, capsys):
    assert main(["train", "--resume", str(cvt_run), "--init", str(cvt_run)]) == 2
    assert "not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.stages.widths", "4", "12"], "must agree in normalization.bias"),
        (["--model.convolution-normalization", "none"], "must have the same parameters"),
        (["--normalization.affine", "none"], "must have the same parameters"),
    ],
)
def test_weights_that_do_not_fit_are_named(cvt_run, tmp_path, capsys, words, message):
    assert main(["train", "--init", str(cvt_run), "--out", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
