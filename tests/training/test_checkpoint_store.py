"""The store of checkpoints by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from ctt.training.checkpoint import CheckpointStore


def test_what_is_saved_is_what_was_given_whatever_becomes_of_it_later(tmp_path):
    state = {f"a{number}": np.full((512, 512), 1.0, np.float32) for number in range(8)}
    store = CheckpointStore(tmp_path / "checkpoints", run_id="x")
    store.save(1, state, {})
    for array in state.values():
        array[:] = 2.0  # As the next update does with the memory of a state that it was given for good.
    store.wait()
    restored, _ = store.restore(state)
    store.close()
    assert all(np.all(array == 1.0) for array in restored.values())


def test_a_state_may_be_donated_while_it_is_saved(tmp_path):
    @jax.jit
    def fill(value):
        return {f"a{number}": jnp.full((512, 512), value) for number in range(8)}

    update = jax.jit(lambda state: jax.tree.map(lambda x: x + 1.0, state), donate_argnums=0)
    state = fill(1.0)
    store = CheckpointStore(tmp_path / "checkpoints", run_id="x")
    for step in range(1, 6):
        store.save(step, state, {})
        state = update(state)
    store.wait()
    for step in range(1, 6):
        restored, _ = store.restore(state, step)
        assert all(np.all(array == step) for array in restored.values())
    store.close()


def test_the_record_is_that_of_the_moment_of_saving(tmp_path, monkeypatch):
    handed, original = [], ocp.args.JsonSave
    monkeypatch.setattr(ocp.args, "JsonSave", lambda item: handed.append(item) or original(item))
    window = [{"loss": 1.0}]
    store = CheckpointStore(tmp_path / "checkpoints", run_id="x")
    store.save(1, {"a": np.zeros(3)}, {"window": window})
    window[0]["loss"] = 2.0  # As the updates that follow go on with it.
    window.append({"loss": 3.0})
    assert handed[0]["window"] == [{"loss": 1.0}]
    store.wait()
    _, record = store.restore({"a": np.zeros(3)})
    store.close()
    assert record["window"] == [{"loss": 1.0}]
