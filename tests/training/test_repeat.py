"""Runs repeated with other seeds: each is the run of its seed, and what stops one loses no other."""

import json
import shutil
import signal
import statistics

import pytest
from tiny_run import hash_tree, interrupt_at, read_summary, saved_steps

import ctt
from ctt.cli.main import main

TIMES = ("wall_seconds", "compile_seconds", "images_per_second")
DIVERGENT = ["--optimizer.learning-rate", "1e30", "--optimizer.clip-norm", "None", "--optimizer.warmup-fraction", "0.5"]


def train(*words):
    return main(["train", *map(str, words)])


def without_times(summary):
    return {key: value for key, value in summary.items() if key not in TIMES}


@pytest.fixture(scope="module")
def group(compilation_cache, config_file, tmp_path_factory):
    """Two runs of the tiny config with the seeds 4 and 5, shared: tests must not change it."""
    out = tmp_path_factory.mktemp("groups") / "group"
    assert train(config_file, "--seed", 4, "--seeds", 2, "--out", out, "--json", out.with_name("train.json")) == 0
    return out


@pytest.fixture(scope="module")
def single(compilation_cache, config_file, tmp_path_factory):
    """The run of seed 5 alone."""
    out = tmp_path_factory.mktemp("runs") / "single"
    assert train(config_file, "--seed", 5, "--out", out) == 0
    return out


@pytest.fixture
def break_training(monkeypatch):
    """Return a function that makes the run of a seed diverge, raise, or be counted."""
    import ctt.training.repeat as module

    original = module.train

    def patch(seed, error):
        def call(config, **options):
            if config.seed == seed:
                raise error
            return original(config, **options)

        monkeypatch.setattr(module, "train", call)

    return patch


def test_each_run_is_the_run_of_its_seed_alone(group, single):
    assert without_times(read_summary(group / "seed-5")) == without_times(read_summary(single))


def test_the_seeds_have_runs_of_their_own(group):
    hashes = {read_summary(group / f"seed-{seed}")["params_sha256"] for seed in (4, 5)}
    assert len(hashes) == 2
    assert [ctt.load_run(group / f"seed-{seed}").config.seed for seed in (4, 5)] == [4, 5]


def test_mean_and_deviation_are_those_of_the_runs(group):
    summary = read_summary(group)
    assert (summary["seeds"], summary["diverged"]) == ([4, 5], [])
    assert summary["runs"] == [read_summary(group / f"seed-{seed}") for seed in (4, 5)]
    for name in ("train_loss", "val_loss", "val_accuracy", "test_loss", "test_accuracy", "images_per_second"):
        values = [run[name] for run in summary["runs"]]
        assert summary["mean"][name] == pytest.approx(statistics.mean(values))
        assert summary["std"][name] == pytest.approx(statistics.stdev(values))


def test_the_summary_is_also_written_as_json(group):
    written = json.loads(group.with_name("train.json").read_text())
    assert written == {**read_summary(group), "run": str(group)}


def test_a_finished_group_is_left_as_it_is(group, capsys):
    before = hash_tree(group)
    assert train("--resume", group) == 0
    printed = capsys.readouterr().out
    assert "all seeds are finished" in printed
    assert f"{read_summary(group)['mean']['test_loss']:.4f}" in printed
    assert hash_tree(group) == before


@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_group_goes_on_bit_for_bit(group, config_file, tmp_path, monkeypatch, capsys, signum):
    out = tmp_path / "group"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, signum)
        assert train(config_file, "--seed", 4, "--seeds", 2, "--out", out) == 128 + signum
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert (
        f"seed 4; everything up to there is saved. 0 of 2 runs are finished. Go on with: ctt train --resume {out}"
        in message
    )
    assert saved_steps(out / "seed-4") == [2]
    assert not (out / "seed-5").exists()
    assert train("--resume", out) == 0
    received, expected = read_summary(out), read_summary(group)
    assert [without_times(run) for run in received["runs"]] == [without_times(run) for run in expected["runs"]]


def test_a_finished_seed_is_not_trained_again(group, config_file, tmp_path, break_training):
    out = shutil.copytree(group, tmp_path / "group")
    shutil.rmtree(out / "seed-5")
    (out / "summary.json").unlink()
    break_training(4, AssertionError("a finished run was trained again"))
    assert train("--resume", out) == 0
    assert without_times(read_summary(out / "seed-5")) == without_times(read_summary(group / "seed-5"))


@pytest.mark.parametrize("left", ["", "manifest.json"])
def test_a_seed_that_was_killed_while_it_began_begins_again(group, tmp_path, left):
    out = shutil.copytree(group, tmp_path / "group")
    shutil.rmtree(out / "seed-5")
    (out / "seed-5").mkdir()
    if left:
        (out / "seed-5" / left).touch()
    assert train("--resume", out) == 0
    assert without_times(read_summary(out / "seed-5")) == without_times(read_summary(group / "seed-5"))


def test_a_folder_of_something_else_is_not_touched(group, tmp_path, capsys):
    out = shutil.copytree(group, tmp_path / "group")
    shutil.rmtree(out / "seed-5")
    (out / "seed-5").mkdir()
    (out / "seed-5" / "notes.txt").write_text("mine")
    assert train("--resume", out) == 2
    assert "seed-5` must hold a run or nothing" in capsys.readouterr().err
    assert (out / "seed-5" / "notes.txt").read_text() == "mine"


def test_a_seed_that_diverges_does_not_lose_the_others(
    group, config_file, tmp_path, break_training, monkeypatch, capsys
):
    import ctt.training.loading as loading
    from ctt.training.loop import NonFiniteError

    original, calls = loading.load_dataset, []
    monkeypatch.setattr(loading, "load_dataset", lambda *arguments: calls.append(1) or original(*arguments))
    break_training(4, NonFiniteError("The loss is not finite at step 2; lower it."))
    assert train(config_file, "--seed", 4, "--seeds", 2, "--out", tmp_path / "group") == 1
    summary, streams = read_summary(tmp_path / "group"), capsys.readouterr()
    assert summary["diverged"] == [{"seed": 4, "reason": "The loss is not finite at step 2; lower it."}]
    assert [without_times(run) for run in summary["runs"]] == [without_times(read_summary(group / "seed-5"))]
    assert summary["mean"]["test_loss"] == summary["runs"][0]["test_loss"]
    assert set(summary["std"].values()) == {None}
    assert "seed 4 diverged. The loss is not finite at step 2" in streams.err
    assert "1 of 2 seeds" in streams.out
    assert len(calls) == 1  # The data are read once.


def test_all_seeds_may_diverge(compilation_cache, config_file, tmp_path):
    assert train(config_file, *DIVERGENT, "--seeds", 1, "--out", tmp_path / "group") == 1
    summary = read_summary(tmp_path / "group")
    assert ([run["seed"] for run in summary["diverged"]], summary["runs"]) == ([0], [])
    assert all("not finite" in run["reason"] for run in summary["diverged"])


def test_stopped_at_once_says_how_to_go_on(compilation_cache, config_file, tmp_path, break_training, capsys):
    break_training(1, KeyboardInterrupt())
    assert train(config_file, "--seeds", 2, "--training.steps", 1, "--out", tmp_path / "group") == 130
    assert f"1 of 2 runs are finished. Go on with: ctt train --resume {tmp_path / 'group'}" in capsys.readouterr().err


@pytest.fixture
def begun_with_init(compilation_cache, finished_run, tmp_path, monkeypatch):
    """A group whose runs begin with the weights of another one, interrupted in its first run; and that other run."""
    source = shutil.copytree(finished_run, tmp_path / "source")
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        assert train("--init", source, "--seeds", 2, "--training.steps", 3, "--out", tmp_path / "group") == 130
    return tmp_path / "group", source


def test_all_seeds_may_begin_with_the_weights_of_a_run(begun_with_init, capsys):
    out, source = begun_with_init
    assert train("--resume", out) == 0
    assert "begin with the same weights" in capsys.readouterr().out
    assert len({run["params_sha256"] for run in read_summary(out)["runs"]}) == 2
    manifests = [json.loads((out / f"seed-{seed}" / "manifest.json").read_text()) for seed in (0, 1)]
    assert {manifest["init"]["run_id"] for manifest in manifests} == {ctt.load_run(source).manifest["run_id"]}


def test_initial_weights_that_are_others_now_are_refused(begun_with_init, capsys):
    out, source = begun_with_init
    manifest = json.loads((source / "manifest.json").read_text())
    (source / "manifest.json").write_text(json.dumps({**manifest, "run_id": "another"}))
    assert train("--resume", out) == 2
    assert "must be as it was" in capsys.readouterr().err
    assert (out / "seed-0" / "summary.json").exists()


def test_a_run_killed_before_its_initial_weights_were_saved_begins_again(begun_with_init):
    out, _ = begun_with_init
    shutil.rmtree(out / "seed-0" / "checkpoints")
    assert train("--resume", out) == 0
    assert [run["seed"] for run in read_summary(out)["runs"]] == [0, 1]


def test_a_run_with_other_data_is_not_added(group, tmp_path, capsys):
    out = shutil.copytree(group, tmp_path / "group")
    shutil.rmtree(out / "seed-5")
    values = json.loads((out / "group.json").read_text())
    (out / "group.json").write_text(json.dumps({**values, "data_fingerprint": "f" * 64}))
    assert train("--resume", out) == 2
    assert "fingerprint ffffffffffff" in capsys.readouterr().err
    assert not (out / "seed-5").exists()


REFUSED = {
    "no seeds": ("{config} --seeds 0 --out new", ["`seeds`", "got 0"]),
    "seeds beyond the range": (f"{{config}} --seed {2**32 - 2} --seeds 3 --out new", ["`seeds`", "2^32", "got 3"]),
    "a folder with a run": ("{config} --seeds 2 --out {group}/seed-4", ["already holds a run"]),
    "a folder with a group": (
        "{config} --seeds 2 --out {group}",
        ["already holds the runs of several seeds", "--resume"],
    ),
    "a single run where a group is": ("{config} --out {group}", ["not an empty folder"]),
    "seeds of a group that has its own": ("--resume {group} --seeds 3", ["--resume", "--seeds", "not both"]),
    "another config": ("--resume {group} --model.width 16", ["another config", "model.width"]),
    "another first seed": ("--resume {group} --seed 7", ["another config", "seed"]),
    "a group as initial weights": ("{config} --init {group} --out new", ["no run but a group", "seed-4"]),
    "seeds of initial weights that are none": ("{config} --init {group} --seeds 2 --out new", ["no run but a group"]),
    "weights that do not fit": (
        "{config} --init {group}/seed-4 --seeds 2 --model.width 16 --out new",
        ["must agree", "[2, 8]", "[2, 16]"],
    ),
    "more images a step than there are": ("{config} --seeds 2 --training.batch-size 1258 --out new", ["1257", "1258"]),
    "a model that cannot be": (
        "{config} --seeds 2 --out new --splitting.substep exact",
        ["exact", "attention has none"],
    ),
}


@pytest.mark.parametrize(("words", "fragments"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_repeated_is_refused_in_one_sentence(
    group, config_file, tmp_path, monkeypatch, capsys, words, fragments
):
    monkeypatch.chdir(tmp_path)
    before = hash_tree(group)
    assert train(*words.format(config=config_file, group=group).split()) == 2
    message = capsys.readouterr().err.strip()
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []
    assert hash_tree(group) == before


BROKEN = {
    "no json": "{",
    "no seeds": '{"seeds": [], "data_fingerprint": "f", "config": {}, "init": null}',
    "a seed twice": '{"seeds": [1, 1], "data_fingerprint": "f", "config": {}, "init": null}',
    "a seed out of range": '{"seeds": [4294967296], "data_fingerprint": "f", "config": {}, "init": null}',
    "no fingerprint": '{"seeds": [1], "config": {}, "init": null}',
    "no config": '{"seeds": [1], "data_fingerprint": "f", "init": null}',
    "half an init": '{"seeds": [1], "data_fingerprint": "f", "config": {}, "init": {"path": "a"}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_group_file_is_refused(tmp_path, capsys, text):
    (tmp_path / "group.json").write_text(text)
    assert train("--resume", tmp_path) == 2
    message = capsys.readouterr().err.strip()
    assert "group.json" in message
    assert "Restore the file" in message
    assert "\n" not in message


def test_a_group_is_no_run(group):
    with pytest.raises(ctt.config.InputError, match=r"no run but a group.*seed-4"):
        ctt.load_run(group)


def test_a_group_is_evaluated_run_by_run(group, tmp_path, capsys):
    assert main(["eval", str(group), "--split", "val", "--json", str(tmp_path / "eval.json")]) == 0
    values, summary = json.loads((tmp_path / "eval.json").read_text()), read_summary(group)
    assert [run["loss"] for run in values["runs"]] == [run["val_loss"] for run in summary["runs"]]
    assert values["mean"]["accuracy"] == pytest.approx(summary["mean"]["val_accuracy"])
    assert values["std"]["loss"] == pytest.approx(summary["std"]["val_loss"])
    scores = [run["brier_score"] for run in values["runs"]]
    assert values["mean"]["brier_score"] == pytest.approx(statistics.mean(scores))
    assert f"{values['mean']['brier_score']:.4f}" in capsys.readouterr().out


def test_an_unfinished_run_is_left_out_of_an_evaluation_aloud(group, tmp_path, capsys):
    out = shutil.copytree(group, tmp_path / "group")
    (out / "seed-5" / "summary.json").unlink()
    assert main(["eval", str(out), "--json", str(tmp_path / "eval.json")]) == 0
    values = json.loads((tmp_path / "eval.json").read_text())
    assert ([run["seed"] for run in values["runs"]], values["std"]["loss"]) == ([4], None)
    printed = capsys.readouterr().out
    assert "left out, since they are not finished: seed-5" in printed
    assert "1 of 2 seeds" in printed
    (out / "seed-4" / "summary.json").unlink()
    assert main(["eval", str(out)]) == 2


def test_a_figure_is_of_one_run(group, tmp_path, capsys):
    assert main(["eval", str(group), "--figure", str(tmp_path / "a.png")]) == 2
    assert "seed-4" in capsys.readouterr().err
