"""A checkpoint that was truncated, damaged or exchanged is refused in one sentence, and nothing else changes."""

import gc
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_run import hash_tree, read_summary

from ctt.cli.main import main
from ctt.config import Config
from ctt.config.arguments import parse_arguments
from ctt.config.resolve import resolve_config
from ctt.models.build import build_model
from ctt.training.checkpoint import CheckpointStore
from ctt.training.directory import RunDirectory
from ctt.training.state import state_record
from ctt.training.step import build_update

ESSENTIAL = {
    "record": "record/metadata",
    "tree": "state/_METADATA",
    "index": "state/manifest.ocdbt",
    "data": "state/d/*",
}
"""Files that a restore needs."""

SPARE = {
    "marker": "commit_success.txt",
    "metadata": "_CHECKPOINT_METADATA",
    "sharding": "state/_sharding",
    "part_index": "state/ocdbt.process_0/manifest.ocdbt",
    "part_data": "state/ocdbt.process_0/d/*",
    "array_metadata": "state/array_metadatas/process_0",
    "tree": "state/_METADATA",
}
"""Files that Orbax writes besides, some of which it never reads again."""


def _truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {"truncated": _truncate, "empty": _empty, "deleted": Path.unlink, "flipped": _flip_a_bit}


@pytest.fixture(autouse=True)
def _collect_garbage():
    """Let go of what a refused restore leaves open, now and not in the middle of the next test's parsing.

    Python 3.11 prints the warnings of such a collection by parsing source, and `ast.parse` cannot be entered
    twice there (its issue 106905).
    """
    yield
    gc.collect()


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy of the finished run, to be damaged; its checkpoints are of steps 3 and 6."""
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.fixture
def words(run):
    """The words of a command on the run."""
    image = run.parent / "image.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(image)
    return {
        "resume": ["train", "--resume", str(run)],
        "eval": ["eval", str(run)],
        "predict": ["predict", str(run), str(image)],
    }


def _damage_each(run: Path, pattern: str, damage) -> None:
    for path in sorted((run / "checkpoints" / "6").glob(pattern)):
        damage(path)


@pytest.mark.parametrize(
    ("damage", "command"),
    [("truncated", "resume"), ("flipped", "resume"), ("flipped", "eval"), ("truncated", "predict")],
)
def test_every_command_refuses_damaged_data(run, words, capsys, damage, command):
    _damage_each(run, ESSENTIAL["data"], DAMAGES[damage])
    before = hash_tree(run)
    status, message = main(words[command]), capsys.readouterr().err.strip()
    assert (status, "\n" in message, hash_tree(run) == before) == (2, False, True), message
    assert f"{run}/checkpoints/6" in message


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (kind, damage)
        for kind in ESSENTIAL
        for damage in ("truncated", "empty", "deleted")
        if (kind, damage) != ("tree", "deleted")  # The arrays are found by their names without it.
    ],
)
def test_a_checkpoint_without_a_whole_file_is_refused(run, words, capsys, kind, damage):
    _damage_each(run, ESSENTIAL[kind], DAMAGES[damage])
    before = hash_tree(run)
    status, message = main(words["eval"]), capsys.readouterr().err.strip()
    assert (status, "\n" in message, hash_tree(run) == before) == (2, False, True), message
    assert re.search(r"checkpoints/6` .* move that folder away to use the one of step 3", message)


@pytest.mark.parametrize("damage", ["truncated", "deleted", "flipped"])
@pytest.mark.parametrize("kind", SPARE)
def test_a_damaged_spare_file_never_changes_the_measures(run, words, tmp_path, kind, damage):
    _damage_each(run, SPARE[kind], DAMAGES[damage])
    status = main([*words["eval"], "--json", str(tmp_path / "eval.json")])
    assert status == 2 or _accuracy(tmp_path) == read_summary(run)["test_accuracy"]


def _accuracy(folder: Path) -> float:
    return json.loads((folder / "eval.json").read_text())["accuracy"]


def test_the_older_checkpoint_is_resumed_once_the_damaged_one_is_moved_away(run, words, finished_run):
    _damage_each(run, ESSENTIAL["data"], _truncate)
    (run / "checkpoints" / "6").rename(run.parent / "damaged")
    (run / "summary.json").unlink()
    assert main(words["resume"]) == 0
    assert read_summary(run)["params_sha256"] == read_summary(finished_run)["params_sha256"]


def test_a_run_whose_only_checkpoint_is_damaged_may_start_again(run, words, capsys):
    shutil.rmtree(run / "checkpoints" / "3")
    _damage_each(run, ESSENTIAL["data"], _truncate)
    assert main(words["resume"]) == 2
    assert "start this run again from step 0" in capsys.readouterr().err


def _exchange(run: Path, *words: str, run_id: str) -> None:
    """Put the initial state of another config in the place of the run's checkpoints."""
    shutil.rmtree(run / "checkpoints")
    default = RunDirectory(run).read_config()
    config = resolve_config(parse_arguments(Config, list(words), default=default, prog="test"))
    state, _ = build_update(config, build_model(config), 6)
    store = CheckpointStore(run / "checkpoints", run_id=run_id)
    store.save(6, state_record(state), {"last_train": {}, "clock": {}})
    store.close()


@pytest.mark.parametrize("command", ["resume", "eval", "predict"])
def test_a_checkpoint_of_another_shape_is_refused(run, words, capsys, command):
    run_id = json.loads((run / "manifest.json").read_text())["run_id"]
    _exchange(run, "--model.feedforward-width", "12", run_id=run_id)
    before = hash_tree(run)
    status, message = main(words[command]), capsys.readouterr().err.strip()
    assert (status, "\n" in message, hash_tree(run) == before) == (2, False, True), message


@pytest.mark.parametrize("command", ["resume", "eval", "predict"])
def test_a_checkpoint_of_another_run_is_refused(run, words, capsys, command):
    _exchange(run, "--seed", "1", run_id="0" * 32)
    before = hash_tree(run)
    status, message = main(words[command]), capsys.readouterr().err.strip()
    assert (status, "\n" in message, hash_tree(run) == before) == (2, False, True), message
    assert "another run" in message


@pytest.mark.parametrize("command", ["resume", "eval", "predict"])
@pytest.mark.parametrize("damage", ["truncated", "empty"])
def test_a_damaged_config_is_refused(run, words, capsys, command, damage):
    DAMAGES[damage](run / "config.json")
    status, message = main(words[command]), capsys.readouterr().err.strip()
    assert (status, "\n" in message, "config.json" in message) == (2, False, True), message


@pytest.mark.parametrize("command", ["resume", "eval", "predict"])
@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}"],
)
def test_a_damaged_manifest_is_refused(run, words, capsys, command, content):
    (run / "manifest.json").write_text(content)
    status, message = main(words[command]), capsys.readouterr().err.strip()
    assert (status, "\n" in message, "manifest.json" in message) == (2, False, True), message


def test_a_changed_number_in_the_record_is_refused(run, words, capsys):
    record = run / "checkpoints" / "6" / "record" / "metadata"
    values = json.loads(record.read_text())
    values["clock"]["images"] += 1
    record.write_text(json.dumps(values))
    assert (main(words["eval"]), "damaged" in capsys.readouterr().err) == (2, True)
