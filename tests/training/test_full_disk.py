"""A full or read-only disk ends a run with one sentence; the older checkpoint stays, and a resume is bit-equal."""

import contextlib
import errno
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from child_run import command, finish, start
from tiny_run import read_summary

import ctt.training.directory as directory_module
from ctt.cli.main import main

SAVE_OFTEN = ("--training.checkpoint-every", "1", "--training.keep-checkpoints", "1", "--training.log-every", "1")


@contextlib.contextmanager
def _mounted(folder: Path, size: str):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def disk(tmp_path):
    """A disk of 1 MiB."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root alone")
    with _mounted(tmp_path / "disk", "1m") as folder:
        yield folder


def _fill(disk: Path, *, leave: int) -> Path:
    """Fill a disk but for some bytes, and return the file that fills it."""
    path = disk / "filling"
    free = shutil.disk_usage(disk).free
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:  # A save may be taking from it too.
        for size in (free - leave, *([1 << 12] * 64 if not leave else [])):
            file.write(b"x" * max(size, 0))
    return path


def _kept(run):
    return [int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdecimal()]


def _train(config_file, run, *words):
    """Train in a process of its own, where threads and loggers write to the same error output."""
    return finish(command(config_file, run, *SAVE_OFTEN, *words))


def _fill_when(monkeypatch, disk, step, *, leave=0):
    """Fill the disk while an update is being prepared."""
    import ctt.training.feed as feed

    original = feed.batch_indices

    def choose(seed, finished, **sizes):
        if finished == step - 1 and not (disk / "filling").exists():
            _fill(disk, leave=leave)
        return original(seed, finished, **sizes)

    monkeypatch.setattr(feed, "batch_indices", choose)


def _resume_in_process(config_file, run, *words):
    return main(["train", str(config_file), "--out", str(run), "--resume", "auto", *SAVE_OFTEN, *words])


def test_a_disk_that_is_too_small_ends_with_one_sentence(disk, config_file, finished_run):
    run = disk / "run"
    (disk / "filling").write_bytes(b"x" * (640 << 10))
    status, errors = _train(config_file, run, "--training.keep-checkpoints", "9", "--training.log-every", "6")
    assert (status, len(errors.strip().splitlines())) == (2, 1), errors
    assert "no space left on the device" in errors
    assert any(f"the one of step {step} is kept" in errors for step in _kept(run))
    (disk / "filling").unlink()
    status, errors = _train(config_file, run)
    assert (status, errors) == (0, "")
    assert read_summary(run)["params_sha256"] == read_summary(finished_run)["params_sha256"]


@pytest.mark.parametrize("step", [3, 5])
@pytest.mark.parametrize("leave", [0, 16 << 10])
def test_the_only_checkpoint_survives_a_save_that_fails(
    disk, config_file, finished_run, compilation_cache, monkeypatch, capsys, step, leave
):
    run = disk / "run"
    words = ("--logging.no-tensorboard", "--training.log-every", "6")
    with monkeypatch.context() as patch:
        _fill_when(patch, disk, step, leave=leave)
        assert _resume_in_process(config_file, run, *words) == 2
    errors = capsys.readouterr().err.strip()
    assert len(errors.splitlines()) == 1, errors
    assert "No space left" in errors or "no space left" in errors
    assert _kept(run), errors
    (disk / "filling").unlink()
    assert _resume_in_process(config_file, run, *words) == 0
    assert read_summary(run)["params_sha256"] == read_summary(finished_run)["params_sha256"]


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "metrics.jsonl", "summary.json"])
def test_a_file_that_cannot_be_written_is_named(
    disk, config_file, finished_run, compilation_cache, monkeypatch, capsys, name
):
    """The disk is full from the moment at which the file is to be written."""
    run = disk / "run"
    write, append = directory_module.write_atomically, directory_module.RunDirectory.append_metrics

    def fill_and_write(path, text):
        if path.name == name:
            _fill(disk, leave=0)
        write(path, text)

    def fill_and_append(self, line):
        if name == "metrics.jsonl" and line["step"] == 3:
            _fill(disk, leave=0)
        append(self, line)

    words = ("--training.checkpoint-every", "2", "--logging.no-tensorboard")
    with monkeypatch.context() as patch:
        patch.setattr(directory_module, "write_atomically", fill_and_write)
        patch.setattr(directory_module.RunDirectory, "append_metrics", fill_and_append)
        assert _resume_in_process(config_file, run, *words) == 2
    errors = capsys.readouterr().err.strip()
    assert len(errors.splitlines()) == 1, errors
    assert str(run) in errors
    (disk / "filling").unlink()
    assert _resume_in_process(config_file, run, *words) == 0
    assert read_summary(run)["params_sha256"] == read_summary(finished_run)["params_sha256"]


def test_tensorboard_is_dropped_where_only_its_file_cannot_be_written(
    config_file, finished_run, compilation_cache, tmp_path, monkeypatch, capsys
):
    from ctt.training.telemetry.tensorboard import TensorBoardSink

    def refuse(self, **fields):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(TensorBoardSink, "_write_event", refuse)
    assert _resume_in_process(config_file, tmp_path / "run") == 0
    captured = capsys.readouterr()
    lines = (captured.out + captured.err).splitlines()
    assert len([line for line in lines if "nothing more goes to TensorBoard" in line]) == 1
    assert read_summary(tmp_path / "run")["params_sha256"] == read_summary(finished_run)["params_sha256"]


def test_a_disk_that_becomes_read_only_ends_with_one_sentence(disk, config_file, compilation_cache, tmp_path):
    run, words = disk / "run", ("--training.steps", "30", "--logging.no-tensorboard")
    process = start(command(config_file, run, *SAVE_OFTEN, *words))
    deadline = time.monotonic() + 120
    while not (run / "checkpoints" / "2").is_dir() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
    # A file system with files that are being written refuses to become read-only.
    remount = ["mount", "-o", "remount,ro", disk]
    while process.poll() is None and subprocess.run(remount, capture_output=True).returncode:
        pass
    _, errors = process.communicate(timeout=120)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert (process.returncode, len(errors.strip().splitlines())) == (2, 1), errors
    assert "ead-only" in errors
    assert _kept(run)
    for folder in (run, tmp_path / "whole"):
        assert _resume_in_process(config_file, folder, *words) == 0
    assert read_summary(run)["params_sha256"] == read_summary(tmp_path / "whole")["params_sha256"]


def test_a_read_only_folder_is_refused_with_one_sentence(disk, config_file, compilation_cache, capsys):
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert main(["train", str(config_file), "--out", str(disk / "run")]) == 2
    errors = capsys.readouterr().err.strip()
    assert len(errors.splitlines()) == 1, errors
    assert str(disk / "run") in errors


def test_a_run_on_a_read_only_disk_is_not_resumed(disk, config_file, finished_run, compilation_cache, capsys):
    run = shutil.copytree(finished_run, disk / "run")
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints" / "6")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert _resume_in_process(config_file, run) == 2
    errors = capsys.readouterr().err.strip()
    assert len(errors.splitlines()) == 1, errors
    assert str(run) in errors
