"""`--resume auto`: which folder a run goes on in, and that the same command begins it and goes on with it."""

import shutil

import pytest
from tiny_run import hash_tree, interrupt_at, read_summary, saved_steps

import ctt
from ctt.cli.main import main
from ctt.training.directory import RunDirectory


@pytest.fixture
def auto(compilation_cache, config_file, tmp_path, monkeypatch):
    """Return a function that runs the one command, with more words, in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words, at=None):
        with monkeypatch.context() as patch:
            if at is not None:
                interrupt_at(patch, at)
            return main(["train", str(config_file), "--resume", "auto", *words])

    return call


@pytest.fixture
def runs(tmp_path):
    """The folder of runs whose folder nobody named."""
    return tmp_path / "runs"


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _hash(run):
    return read_summary(run)["params_sha256"]


def test_the_same_command_begins_a_run_and_goes_on_with_it(auto, runs, finished_run, capsys):
    assert auto(at=2) == 130
    assert saved_steps(runs / "tiny") == [2]
    assert auto(at=4) == 130
    assert auto() == 0
    assert "Resuming runs/tiny at step 4 of 6" in capsys.readouterr().out
    assert _names(runs) == ["tiny"]
    assert _hash(runs / "tiny") == _hash(finished_run)


def test_a_finished_run_is_found_said_and_left_as_it_is(auto, runs, finished_run, capsys):
    shutil.copytree(finished_run, runs / "tiny")
    before = hash_tree(runs)
    assert auto() == 0
    assert "The run is finished: nothing is left to do." in capsys.readouterr().out
    assert hash_tree(runs) == before


def test_the_newest_run_of_this_config_is_chosen(auto, runs, finished_run, capsys):
    for name in ("tiny", "tiny-2", "tiny-3"):
        shutil.copytree(finished_run, runs / name)
    other = RunDirectory(runs / "tiny-3")
    other.write_json("config.json", {**other.read_json("config.json"), "seed": 7})
    assert ctt.load_run(other.path).config.seed == 7
    before = hash_tree(runs)
    assert auto() == 0
    assert "Run directory: runs/tiny-2." in capsys.readouterr().out
    assert hash_tree(runs) == before


def test_where_no_run_has_this_config_one_begins(auto, runs, finished_run, tmp_path):
    shutil.copytree(finished_run, runs / "tiny")
    (runs / "tiny-2").mkdir()
    (runs / "tiny-2" / "config.json").write_text('{"half')
    before = hash_tree(runs)
    assert auto("--seed", "1", at=1) == 130
    assert saved_steps(runs / "tiny-3") == [1]
    shutil.rmtree(runs / "tiny-3")
    assert hash_tree(runs) == before


def test_how_often_a_run_reports_is_no_other_config(auto, runs, finished_run):
    shutil.copytree(finished_run, runs / "tiny")
    assert auto("--training.log-every", "1", "--training.keep-checkpoints", "1") == 0
    assert _names(runs) == ["tiny"]


def test_an_explicit_folder_of_another_config_is_refused_and_unchanged(auto, finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    before = hash_tree(run)
    assert auto("--out", str(run), "--optimizer.learning-rate", "0.5") == 2
    errors = capsys.readouterr().err.strip()
    assert "was made by another config: optimizer.learning_rate" in errors
    assert len(errors.splitlines()) == 1
    assert hash_tree(run) == before


@pytest.mark.parametrize("name", ["note.txt", "summary.json", "checkpoints/3/data"])
@pytest.mark.parametrize("seeds", [(), ("--seeds", "2")])
def test_a_folder_of_something_else_is_refused_and_unchanged(auto, tmp_path, capsys, name, seeds):
    folder = tmp_path / "mine"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("mine")
    (folder / "manifest.json.partial").write_text("mine too")
    before = hash_tree(folder)
    assert auto("--out", str(folder), *seeds) == 2
    errors = capsys.readouterr().err.strip()
    assert ("is not an empty folder" in errors, len(errors.splitlines())) == (True, 1), errors
    assert hash_tree(folder) == before


def test_a_file_in_the_place_of_the_folder_is_refused(auto, tmp_path, capsys):
    (tmp_path / "mine").write_text("mine")
    assert auto("--out", str(tmp_path / "mine")) == 2
    assert "is not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("out", [(), ("--out", "there")])
def test_a_run_that_begins_with_the_weights_of_another(auto, finished_run, tmp_path, capsys, out):
    words, folder = (*out, "--init", str(finished_run)), tmp_path / (out[1] if out else "runs/tiny")
    assert auto(*words, at=2) == 130
    assert auto(*words) == 0
    assert "at step 2 of 6" in capsys.readouterr().out
    assert _hash(folder) != _hash(finished_run)
    undisturbed = tmp_path / "undisturbed"
    assert auto("--init", str(finished_run), "--out", str(undisturbed)) == 0
    assert _hash(folder) == _hash(undisturbed)
    assert ctt.load_run(folder).manifest["init"]["run_id"] == ctt.load_run(finished_run).manifest["run_id"]


def test_a_run_of_other_initial_weights_is_another_run(auto, runs, finished_run, tmp_path, capsys):
    shutil.copytree(finished_run, runs / "tiny")
    before = hash_tree(runs)
    assert auto("--out", str(runs / "tiny"), "--init", str(finished_run)) == 2
    assert "must have begun with the weights of --init" in capsys.readouterr().err
    assert auto("--init", str(finished_run), at=1) == 130
    assert 1 in saved_steps(runs / "tiny-2")
    (runs / "tiny-2").rename(tmp_path / "other")
    assert hash_tree(runs) == before
    (tmp_path / "other").rename(runs / "tiny-2")
    assert auto() == 0  # The finished run, older than that of other weights.
    assert "The run is finished" in capsys.readouterr().out


def test_a_group_goes_on_by_the_same_command(auto, runs, finished_run, tmp_path, capsys):
    shutil.copytree(finished_run, runs / "tiny")  # A run, and no group.
    assert auto("--seeds", "2", at=4) == 130
    group = runs / "tiny-2"
    assert saved_steps(group / "seed-0") == [3, 4]
    assert auto("--seeds", "2") == 0
    assert _names(runs) == ["tiny", "tiny-2"]
    assert _hash(group / "seed-0") == _hash(finished_run)
    assert [run["seed"] for run in read_summary(group)["runs"]] == [0, 1]
    before = hash_tree(runs)
    capsys.readouterr()
    assert auto("--seeds", "2") == 0
    assert "The runs of all seeds are finished: nothing is left to do." in capsys.readouterr().out
    for folder, held in ((group, "the runs of 2 seeds"), (runs / "tiny", "a single run")):
        assert auto("--out", str(folder), "--seeds", "3") == 2
        errors = capsys.readouterr().err.strip()
        assert (f"and holds {held}" in errors, len(errors.splitlines())) == (True, 1), errors
    assert hash_tree(runs) == before
    assert auto("--seeds", "3", at=1) == 130  # Of other seeds, so another group.
    assert (runs / "tiny-3" / "group.json").is_file()
