"""Whatever a recipe keeps from update to update is saved: a resumed run ends with the very same state."""

import jax
import pytest
from tiny_run import TOTAL, interrupt_at, saved_steps

from ctt.cli.main import main
from ctt.models.build import build_model
from ctt.training.checkpoint import CheckpointStore
from ctt.training.digest import tree_sha256
from ctt.training.directory import RunDirectory
from ctt.training.state import state_record
from ctt.training.step import build_update

RECIPES = {
    "muon": "--optimizer.name muon --optimizer.schedule wsd --optimizer.layer-decay 0.8 --optimizer.ema-decay 0.9 "
    "--training.micro-batches 4 --model.stochastic-depth 0.2",
    "schedule_free": "--optimizer.name schedule_free --optimizer.schedule constant",
}


def read_state(run):
    directory = RunDirectory(run)
    config = directory.read_config()
    template = jax.eval_shape(lambda: state_record(build_update(config, build_model(config), TOTAL)[0]))
    store = CheckpointStore(directory.checkpoints, run_id=directory.read_manifest()["run_id"])
    return store.restore(template)[0]


@pytest.mark.parametrize("words", RECIPES.values(), ids=RECIPES)
def test_a_resumed_run_ends_with_the_state_of_the_undisturbed_one(compilation_cache, config_file, tmp_path, words):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    assert main(["train", str(config_file), "--out", str(whole), *words.split()]) == 0
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 4)
        assert main(["train", str(config_file), "--out", str(resumed), *words.split()]) == 130
    assert saved_steps(resumed)[-1] == 4
    assert main(["train", "--resume", str(resumed)]) == 0
    states = [read_state(run) for run in (whole, resumed)]
    assert ("average" in states[0]) == ("ema" in words)
    assert len({tree_sha256(state) for state in states}) == 1
