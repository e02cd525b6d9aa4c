"""The files of a run directory, as DESIGN.md section 3 promises them, and what `load_run` gives back."""

import json
import shutil

import numpy as np
import pytest
from tiny_run import read_lines, read_summary, saved_steps

import ctt
from ctt.cli.main import main
from ctt.config.error import InputError
from ctt.config.resolve import resolve_config
from ctt.config.serialize import config_from_dict
from ctt.data import load_dataset
from ctt.models.build import count_parameters
from ctt.training.digest import tree_sha256
from ctt.training.evaluate import build_evaluator
from ctt.training.loop import train

SUMMARY = {
    "steps": int,
    "epochs": float,
    "num_parameters": int,
    "train_loss": float,
    "val_accuracy": float,
    "test_accuracy": float,
    "wall_seconds": float,
    "compile_seconds": float,
    "images_per_second": float,
    "params_sha256": str,
    "data_fingerprint": str,
    "seed": int,
}


@pytest.fixture(scope="module")
def run(finished_run):
    return ctt.load_run(finished_run)


@pytest.fixture(scope="module")
def manifest(finished_run):
    return json.loads((finished_run / "manifest.json").read_text())


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "metrics.jsonl", "summary.json", "checkpoints"])
def test_a_run_directory_has_its_parts(finished_run, name):
    assert (finished_run / name).exists()


@pytest.mark.parametrize(("key", "kind"), SUMMARY.items())
def test_a_summary_has_the_promised_value(finished_run, key, kind):
    assert type(read_summary(finished_run)[key]) is kind


def test_a_summary_counts_steps_and_epochs(finished_run):
    summary = read_summary(finished_run)
    assert (summary["steps"], summary["epochs"]) == (6, 6 / (1257 // 16))


def test_the_written_config_restores_to_the_resolved_one(finished_run, config_file):
    written = json.loads((finished_run / "config.json").read_text())
    assert config_from_dict(written) == resolve_config(ctt.load_config(config_file))


@pytest.mark.parametrize("library", ["ctt", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"])
def test_a_manifest_has_the_version(manifest, library):
    assert isinstance(manifest["environment"]["versions"][library], str)


def test_a_manifest_has_the_commit(manifest):
    assert manifest["commit"] is None or len(manifest["commit"].removesuffix("+changes")) == 40


def test_a_manifest_names_the_devices(manifest):
    assert set(manifest["environment"]["devices"]) == {"kind", "platform", "count"}


def test_a_manifest_has_the_class_names(manifest):
    assert manifest["class_names"] == list("0123456789")


def test_a_manifest_has_the_sizes_of_the_splits(manifest):
    assert manifest["split_sizes"] == {"train": 1257, "val": 180, "test": 360}


def test_manifest_and_summary_have_the_fingerprint_of_the_data(manifest, finished_run, run):
    fingerprint = load_dataset(run.config.data).fingerprint
    assert {manifest["data_fingerprint"], read_summary(finished_run)["data_fingerprint"]} == {fingerprint}


def test_every_line_of_the_metrics_has_a_step_and_a_split(finished_run):
    lines = read_lines(finished_run)
    assert all(type(line["step"]) is int and line["split"] in ("train", "val", "test") for line in lines)


@pytest.mark.parametrize(("split", "steps"), [("train", [2, 4, 6]), ("val", [3, 6]), ("test", [6])])
def test_metrics_have_a_line_at_each_due_step(finished_run, split, steps):
    assert [line["step"] for line in read_lines(finished_run) if line["split"] == split] == steps


@pytest.mark.parametrize("key", ["loss", "accuracy", "gradient_norm", "learning_rate", "images_per_second"])
def test_a_training_line_has_the_measure(finished_run, key):
    assert all(type(line[key]) is float for line in read_lines(finished_run) if line["split"] == "train")


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("measure", ["loss", "accuracy"])
def test_the_summary_measures_the_last_weights(finished_run, run, split, measure):
    from flax import nnx

    evaluate = build_evaluator(run.model, run.config.training.eval_batch_size)
    result = evaluate(nnx.state(run.model, nnx.Param), load_dataset(run.config.data).split(split))
    assert read_summary(finished_run)[f"{split}_{measure}"] == getattr(result, measure)


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_last_line_of_a_split_is_what_the_summary_says(finished_run, split):
    last = [line for line in read_lines(finished_run) if line["split"] == split][-1]
    summary = read_summary(finished_run)
    assert (last["loss"], last["accuracy"]) == (summary[f"{split}_loss"], summary[f"{split}_accuracy"])


def test_accuracy_is_the_share_of_largest_logits_that_are_right(finished_run, run):
    split = load_dataset(run.config.data).test
    chosen = np.argmax(np.asarray(run.model(split.images)), axis=-1)
    assert read_summary(finished_run)["test_accuracy"] == np.mean(chosen == split.labels)


def test_load_run_gives_the_resolved_config(run, config_file):
    assert run.config == ctt.load_config(config_file)


def test_load_run_gives_the_step_of_the_newest_checkpoint(run):
    assert run.step == 6


def test_load_run_gives_the_lines_of_the_metrics(run, finished_run):
    assert run.metrics == read_lines(finished_run)


def test_load_run_gives_the_trained_weights(run, finished_run):
    from flax import nnx

    weights = nnx.to_pure_dict(nnx.state(run.model, nnx.Param))
    assert tree_sha256(weights) == read_summary(finished_run)["params_sha256"]


def test_load_run_gives_other_logits_than_the_initial_weights(run):
    images = load_dataset(run.config.data).test.images[:4]
    assert not np.array_equal(run.model(images), ctt.build_model(run.config)(images))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_id": 3}, "must have run_id, a text"),
        ({"data_fingerprint": []}, "must have data_fingerprint, a text or null"),
        ({"class_names": ["cat"]}, "must have class_names, a list of 10 texts"),
        ({"class_names": list(range(10))}, "must have class_names, a list of 10 texts"),
        ({"class_names": "0123456789"}, "must have class_names, a list of 10 texts"),
        ({"origin": "elsewhere"}, "must have origin, where there is one, an object"),
        ({"origin": {"counters": [1]}}, r"must have origin\.counters"),
        ({"origin": {"counters": {"a": "x"}}}, r"must have origin\.counters"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(finished_run, tmp_path, changes, message):
    copy = shutil.copytree(finished_run, tmp_path / "run")
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | changes))
    with pytest.raises(InputError, match=rf"manifest\.json` {message}.*Restore the file"):
        ctt.load_run(copy)


def test_a_folder_of_weights_of_another_library_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["ViTForImageClassification"]}')
    with pytest.raises(InputError, match=r"weights of another library\. Give the run that `ctt import"):
        ctt.load_run(tmp_path)


def test_the_summary_counts_the_learnable_scalars(run, finished_run):
    assert read_summary(finished_run)["num_parameters"] == count_parameters(run.model)


def test_train_returns_what_it_writes(finished_run, tmp_path):
    copy = shutil.copytree(finished_run, tmp_path / "run")
    summary = train(ctt.load_run(copy).config, out=copy, resume=True)
    assert summary == read_summary(copy)


@pytest.mark.parametrize(("keep", "kept"), [(1, [6]), (2, [4, 6]), (9, [2, 4, 6])])
def test_the_newest_checkpoints_are_kept(compilation_cache, config_file, tmp_path, keep, kept):
    words = ["--training.keep-checkpoints", str(keep), "--training.checkpoint-every", "2"]
    assert main(["train", str(config_file), "--out", str(tmp_path / "run"), *words]) == 0
    assert saved_steps(tmp_path / "run") == kept


def test_a_run_without_a_folder_goes_to_the_first_free_one(compilation_cache, config_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    assert main(["train", str(config_file)]) == 0
    assert (tmp_path / "runs" / "tiny-2" / "summary.json").exists()
