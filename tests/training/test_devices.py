"""A run on eight devices is the run on one: the same batches, the same losses, whole checkpoints for any number."""

import json
import shutil

import pytest
from device_runs import HARSH, draw_batches, losses, play, train_scene
from tiny_run import TOTAL, read_summary, saved_steps

from ctt.cli.main import main

# Largest difference of two losses [nats] of runs that differ in their devices alone, on sums rounded in another order.
# The losses of this run are between 2.2 and 2.4 and change by 0.04 from step to step; 7.2e-7 was measured.
TOLERANCE = 1e-5

EIGHT, FOUR = [], ["--devices.fsdp", "4"]


@pytest.fixture(scope="module")
def one(compilation_cache, config_file, tmp_path_factory):
    """The run on one device, undisturbed, and its checkpoint in the middle alone."""
    run = tmp_path_factory.mktemp("runs") / "one"
    assert main(["train", str(config_file), "--out", str(run), *HARSH]) == 0
    return run


@pytest.fixture(scope="module")
def played(one, config_file, tmp_path_factory):
    """What a process with eight devices made: runs by name, and answers by name."""
    root = tmp_path_factory.mktemp("eight")
    early = stop_early(one, root / "early")
    scenes = {
        "eight": train_scene(config_file, root / "eight", *HARSH),
        "cut": train_scene(config_file, root / "cut", *HARSH, *FOUR),
        "widened": train_scene(config_file, None, "--resume", str(early), *HARSH),
        "augmented": {"augmented": [str(config_file), *HARSH]},
        "augmented_cut": {"augmented": [str(config_file), *HARSH, *FOUR]},
        "shards": {"shards": [str(config_file), *HARSH, *FOUR]},
        "deep": {"shards": [str(config_file), *HARSH, *FOUR, "--splitting.steps", "256"]},
    }
    answers = dict(zip(scenes, play(list(scenes.values())), strict=True))
    assert [answers[name]["status"] for name in ("eight", "cut", "widened")] == [0, 0, 0], answers
    return {"root": root, **answers}


def stop_early(run, copy, step=3):
    """Return a copy of a finished run as a kill after a step would have left it."""
    shutil.copytree(run, copy)
    (copy / "summary.json").unlink()
    for later in saved_steps(copy):
        if later > step:
            shutil.rmtree(copy / "checkpoints" / str(later))
    return copy


def assert_close(run, other):
    for split in ("train", "val", "test"):
        ours, theirs = losses(run, split), losses(other, split)
        assert ours == pytest.approx(theirs, rel=0, abs=TOLERANCE)


@pytest.mark.parametrize("name", ["eight", "cut"])
def test_eight_devices_give_the_loss_curve_of_one(one, played, name):
    assert len(losses(one)) == TOTAL
    assert_close(played["root"] / name, one)


def test_the_loss_curve_tells_runs_apart(one, compilation_cache, config_file, tmp_path):
    assert main(["train", str(config_file), "--out", str(tmp_path / "run"), *HARSH, "--seed", "1"]) == 0
    assert min(abs(a - b) for a, b in zip(losses(one), losses(tmp_path / "run"), strict=True)) > 10 * TOLERANCE


@pytest.mark.parametrize("name", ["augmented", "augmented_cut"])
def test_augmented_batches_are_bit_equal_on_any_number_of_devices(played, compilation_cache, config_file, name):
    assert played[name] == draw_batches([str(config_file), *HARSH])


def test_the_devices_are_in_the_manifest(played):
    manifests = [json.loads((played["root"] / name / "manifest.json").read_text()) for name in ("eight", "cut")]
    assert [manifest["mesh"] for manifest in manifests] == [{"data": 8, "fsdp": 1}, {"data": 2, "fsdp": 4}]


# Checkpoints.


def assert_resumed_elsewhere(run, text, change):
    assert "Not bit-equal to an undisturbed run" in text
    assert change in text
    (session,) = json.loads((run / "manifest.json").read_text())["resumed_elsewhere"]
    assert session["step"] == 3
    assert change in session["changes"]


def test_a_run_of_one_device_goes_on_on_eight(one, played):
    run = played["root"] / "early"
    change = "mesh: data 1 x fsdp 1 then, data 8 x fsdp 1 now"
    assert_resumed_elsewhere(run, played["widened"]["text"], change)
    assert_close(run, one)


@pytest.mark.parametrize(("name", "mesh"), [("eight", "data 8 x fsdp 1"), ("cut", "data 2 x fsdp 4")])
def test_a_run_of_eight_devices_goes_on_on_one(one, played, tmp_path, capsys, name, mesh):
    run = stop_early(played["root"] / name, tmp_path / "run")
    assert main(["train", "--resume", str(run), "--devices.fsdp", "1"]) == 0
    captured = capsys.readouterr()
    assert_resumed_elsewhere(run, captured.out + captured.err, f"mesh: {mesh} then, data 1 x fsdp 1 now")
    assert_close(run, one)


@pytest.mark.slow
def test_a_run_goes_on_with_its_weights_cut_otherwise_and_bit_equal_where_nothing_changes(
    played, config_file, tmp_path
):
    same, other = (stop_early(played["root"] / "cut", tmp_path / name) for name in ("same", "other"))
    words = [["--resume", str(same)], ["--resume", str(other), "--devices.fsdp", "1"]]
    answers = play([{"words": ["train", *each], "stop": None} for each in words])
    assert [answer["status"] for answer in answers] == [0, 0], answers
    assert "Not bit-equal" not in answers[0]["text"]
    assert read_summary(same)["params_sha256"] == read_summary(played["root"] / "cut")["params_sha256"]
    assert_resumed_elsewhere(other, answers[1]["text"], "mesh: data 2 x fsdp 4 then, data 8 x fsdp 1 now")
    assert_close(other, played["root"] / "cut")


# How arrays lie.


def test_weights_moments_and_the_average_are_cut_and_small_arrays_whole(played):
    cut = {path for path, (whole, part) in played["shards"].items() if whole != part}
    for whole, part in played["shards"].values():
        if whole != part:
            assert [a for a, b in zip(whole, part, strict=True) if a != b] == [4 * min(part)] or sum(
                a == 4 * b for a, b in zip(whole, part, strict=True)
            ) == 1
    places = ("['params']", "['average']", ".mu", ".nu")
    assert all(any(place in path and "controls" in path for path in cut) for place in places)
    large = {path for path, (whole, _) in played["shards"].items() if _size(whole) >= 4096}
    assert cut == large


@pytest.mark.parametrize("name", ["shards", "deep"])
def test_depth_is_never_cut(played, name):
    controls = {path: shapes for path, shapes in played[name].items() if "controls" in path}
    assert all(whole[:1] == part[:1] for whole, part in controls.values())
    is_deepest = any(whole[0] == max(whole) and whole != part for whole, part in controls.values())
    assert is_deepest == (name == "deep")


def _size(shape):
    size = 1
    for length in shape:
        size *= length
    return size
