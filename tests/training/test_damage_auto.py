"""`--resume auto` goes on from an older checkpoint where the newest is damaged, and loses nothing."""

import json
import shutil

import pytest
from tiny_run import hash_tree, interrupt_at, read_lines, read_summary, saved_steps

from ctt.cli.main import main


def _data(step_folder):
    """Return the files that the arrays are read from, and not the copies that Orbax leaves beside them."""
    return sorted((step_folder / "state" / "d").iterdir())


def _truncate(step_folder):
    for path in _data(step_folder):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip_a_bit(step_folder):
    for path in _data(step_folder):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)


def _empty(step_folder):
    shutil.rmtree(step_folder)
    step_folder.mkdir()


def _lose_the_record(step_folder):
    (step_folder / "record" / "metadata").unlink()


def _lose_the_state(step_folder):
    shutil.rmtree(step_folder / "state")


def _lose_the_data(step_folder):
    shutil.rmtree(step_folder / "state" / "d")


DAMAGES = {
    "truncated": _truncate,
    "flipped": _flip_a_bit,
    "empty": _empty,
    "no_record": _lose_the_record,
    "no_state": _lose_the_state,
    "no_data": _lose_the_data,
}


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy of the finished run that looks as if it was killed before its summary; it saved at 3 and 6."""
    run = shutil.copytree(finished_run, tmp_path / "run")
    (run / "summary.json").unlink()
    return run


def _resume(run, config_file):
    return main(["train", str(config_file), "--out", str(run), "--resume", "auto"])


def _assert_equal_end(run, finished_run):
    assert read_summary(run)["params_sha256"] == read_summary(finished_run)["params_sha256"]
    evaluations = [[line for line in read_lines(r) if line["split"] != "train"] for r in (run, finished_run)]
    assert evaluations[0] == evaluations[1]


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_older_checkpoint_is_used_and_the_damaged_one_put_aside(run, config_file, finished_run, capsys, damage):
    newest = run / "checkpoints" / "6"
    DAMAGES[damage](newest)
    damaged = hash_tree(newest)
    assert _resume(run, config_file) == 0
    captured = capsys.readouterr()
    warnings = [line for line in (captured.out + captured.err).splitlines() if "Warning" in line]
    assert len(warnings) == 1, captured
    assert str(newest) in warnings[0]
    assert "Resuming" in captured.out + captured.err
    assert "at step 3 of 6" in captured.out + captured.err
    assert hash_tree(run / "damaged_checkpoints" / "6") == damaged
    assert saved_steps(run) == [3, 6]
    _assert_equal_end(run, finished_run)


@pytest.mark.parametrize("damage", DAMAGES)
def test_resume_of_a_folder_refuses_a_damaged_checkpoint_and_changes_nothing(run, capsys, damage):
    DAMAGES[damage](run / "checkpoints" / "6")
    before = hash_tree(run)
    status, message = main(["train", "--resume", str(run)]), capsys.readouterr().err.strip()
    assert (status, "\n" in message, hash_tree(run) == before) == (2, False, True), message
    assert f"{run}/checkpoints/6" in message


def test_a_checkpoint_of_another_run_is_put_aside(run, config_file, finished_run, compilation_cache, tmp_path, capsys):
    other = tmp_path / "other"
    assert main(["train", str(config_file), "--out", str(other), "--seed", "1"]) == 0
    shutil.rmtree(run / "checkpoints" / "6")
    shutil.copytree(other / "checkpoints" / "6", run / "checkpoints" / "6")
    capsys.readouterr()
    assert _resume(run, config_file) == 0
    captured = capsys.readouterr()
    assert "another run" in captured.out + captured.err
    assert (run / "damaged_checkpoints" / "6").is_dir()
    _assert_equal_end(run, finished_run)


def test_what_was_put_aside_before_is_not_overwritten(run, config_file, finished_run):
    (run / "damaged_checkpoints" / "6").mkdir(parents=True)
    (run / "damaged_checkpoints" / "6" / "note").write_text("mine")
    _truncate(run / "checkpoints" / "6")
    damaged = hash_tree(run / "checkpoints" / "6")
    assert _resume(run, config_file) == 0
    assert (run / "damaged_checkpoints" / "6" / "note").read_text() == "mine"
    assert hash_tree(run / "damaged_checkpoints" / "6-2") == damaged
    _assert_equal_end(run, finished_run)


def test_a_run_with_nothing_but_damaged_checkpoints_is_refused_and_unchanged(run, config_file, capsys):
    for step in (3, 6):
        _truncate(run / "checkpoints" / str(step))
    before = hash_tree(run)
    capsys.readouterr()
    assert _resume(run, config_file) == 2
    errors = capsys.readouterr().err
    assert "None of the checkpoints in" in errors.splitlines()[-1]
    assert "steps 3, 6" in errors
    assert "Traceback" not in errors
    assert hash_tree(run) == before


def test_a_finished_run_whose_last_checkpoint_is_damaged_makes_it_again(finished_run, config_file, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    _flip_a_bit(run / "checkpoints" / "6")
    assert _resume(run, config_file) == 0
    assert saved_steps(run) == [3, 6]
    _assert_equal_end(run, finished_run)


def test_a_half_written_checkpoint_is_no_checkpoint(run, config_file, finished_run):
    shutil.move(run / "checkpoints" / "6", run / "checkpoints" / "6.orbax-checkpoint-tmp-0")
    assert _resume(run, config_file) == 0
    assert not list((run / "checkpoints").glob("*tmp*"))
    assert not (run / "damaged_checkpoints").exists()
    _assert_equal_end(run, finished_run)


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "metrics.jsonl", "config.json"])
def test_a_half_written_file_is_written_over(run, config_file, finished_run, name):
    shutil.rmtree(run / "checkpoints" / "6")
    (run / f"{name}.partial").write_text('{"half": ')
    assert _resume(run, config_file) == 0
    _assert_equal_end(run, finished_run)
    assert json.loads((run / "manifest.json").read_text())["run_id"]


def test_metrics_cut_short_in_their_last_line_are_mended(run, config_file, finished_run):
    shutil.rmtree(run / "checkpoints" / "6")
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(content[:-25])
    assert _resume(run, config_file) == 0
    _assert_equal_end(run, finished_run)


def test_a_run_killed_before_its_manifest_begins_anew(config_file, finished_run, compilation_cache, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(finished_run / "config.json", run)
    (run / "manifest.json.partial").write_text('{"half": ')
    assert _resume(run, config_file) == 0
    _assert_equal_end(run, finished_run)


def test_a_damaged_checkpoint_in_a_session_that_is_interrupted_again(run, config_file, finished_run, monkeypatch):
    _truncate(run / "checkpoints" / "6")
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)
        assert _resume(run, config_file) == 130
    assert saved_steps(run) == [3, 5]
    assert _resume(run, config_file) == 0
    _assert_equal_end(run, finished_run)
