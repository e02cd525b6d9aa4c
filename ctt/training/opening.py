"""How a session of a run begins: a new run directory, or the newest checkpoint of an old one."""

import dataclasses
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.data.dataset import Dataset
from ctt.training.checkpoint import CheckpointStore
from ctt.training.clock import Clock
from ctt.training.devices import Layout, agree, is_leader, wait_for_all
from ctt.training.directory import RunDirectory
from ctt.training.manifest import build_manifest, environment_changes
from ctt.training.run import Run
from ctt.training.state import TrainState, state_from_record, state_record

Resume = Literal["auto"] | bool
"""Whether to go on with a run: `auto`, if there is one, from its newest checkpoint that is sound."""


@dataclass
class Opening:
    """Where a session of a run begins.

    Attributes:
        state: the state before its first update.
        store: the checkpoints.
        manifest: the manifest.
        step: number of finished updates.
        last_train: the last logged measures of training.
        window: the measures of the updates since then.
        clock: seconds of the sessions before.
    """

    state: TrainState
    store: CheckpointStore
    manifest: dict[str, Any]
    step: int = 0
    last_train: dict[str, float] = dataclasses.field(default_factory=dict)
    window: list[dict[str, float]] = dataclasses.field(default_factory=list)
    clock: Clock = dataclasses.field(default_factory=Clock)


def begin_run(
    directory: RunDirectory,
    config: Config,
    dataset: Dataset,
    layout: Layout,
    state: TrainState,
    *,
    source: Run | None,
    certify: Callable[[], dict[str, Any] | None],
) -> Opening:
    """Make the run directory of a new run.

    Args:
        directory: the folder, free.
        config: the resolved config.
        dataset: the data.
        layout: the devices.
        state: the initial state.
        source: the run whose weights are the initial ones, or None.
        certify: measures the order of the discretisation, which may take long.

    Raises:
        InputError: the folder holds something already, or cannot be made.
    """
    directory.check_free()
    wait_for_all("making the run directory", timeout=config.devices.timeout)
    manifest = _describe(dataset, layout)
    if source is not None:
        begin = {"run": source.path.name, "run_id": source.manifest["run_id"], "step": source.step}
        manifest = {**manifest, "init": begin}
    if is_leader():
        directory.create(config, None if source is None else manifest)
    manifest = _write_manifest(directory, config, manifest)
    opening = Opening(state, open_store(directory, config, manifest), manifest)
    if source is not None:
        save(opening, layout)  # A resume could not draw these weights from the seed.
        opening.store.wait()
    _add_certificate(directory, opening, certify)
    return opening


def restore_run(
    directory: RunDirectory,
    config: Config,
    dataset: Dataset,
    layout: Layout,
    state: TrainState,
    *,
    resume: Resume,
    certify: Callable[[], dict[str, Any] | None],
    say: Callable[[str], None],
) -> Opening:
    """Go on with a run.

    Args:
        directory: its folder.
        config: the resolved config.
        dataset: the data.
        layout: the devices.
        state: a state of the same structure; that of a run that was interrupted before its first checkpoint.
        resume: `auto` puts damaged checkpoints aside and uses an older one.
        certify: see `begin_run`; asked if the run was interrupted before it had its certificate.
        say: where lines are shown.

    Raises:
        InputError: the run was made of other data, or has no checkpoint that can be used.
    """
    (is_missing,) = agree(not (directory.path / "manifest.json").exists())
    if not is_missing:
        manifest = directory.read_manifest()
    else:  # Interrupted before its first line.
        manifest = _write_manifest(directory, config, _describe(dataset, layout))
    _check_data(directory, manifest, dataset)
    opening = Opening(state, open_store(directory, config, manifest), manifest)
    template = jax.eval_shape(lambda: state_record(state))
    found = None
    if resume == "auto":
        found = opening.store.restore_newest(template, say)
    elif opening.store.latest_step() is not None:
        found = opening.store.restore(template)
    if found is not None:
        record, meta = found
        opening.state = state_from_record(record, state)
        opening.step, opening.clock = int(record["step"]), Clock(**meta["clock"])
        opening.last_train, opening.window = meta["last_train"], meta["window"]
    elif "init" in manifest:
        raise InputError(
            f"`{directory.path}` was interrupted before its initial weights, another run's, were saved. "
            "Remove the folder and start again by ctt train --init."
        )
    if "certificate" not in manifest:
        _add_certificate(directory, opening, certify)
    _note_changes(directory, opening, layout, say)
    return opening


def _add_certificate(directory: RunDirectory, opening: Opening, certify: Callable[[], dict[str, Any] | None]) -> None:
    """Measure the order; after every meeting at which the other processes would wait for it."""
    opening.manifest = {**opening.manifest, "certificate": certify()}
    if is_leader():
        directory.write_json("manifest.json", opening.manifest)


def _describe(dataset: Dataset, layout: Layout) -> dict[str, Any]:
    return {**build_manifest(dataset), "mesh": dict(layout.mesh.shape)}


def _write_manifest(directory: RunDirectory, config: Config, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest of a run that has none, and return the one that all processes read."""
    if is_leader() and not (directory.path / "manifest.json").exists():
        directory.write_json("manifest.json", manifest)
    wait_for_all("writing the manifest", timeout=config.devices.timeout)
    return directory.read_manifest()


def open_store(directory: RunDirectory, config: Config, manifest: dict[str, Any]) -> CheckpointStore:
    """Return the checkpoints of a run, to write to.

    Args:
        directory: the run directory.
        config: its config.
        manifest: its manifest.
    """
    keep = config.training.keep_checkpoints
    return CheckpointStore(directory.checkpoints, run_id=manifest["run_id"], keep=keep)


def save(opening: Opening, layout: Layout, *, score: float | None = None) -> None:
    """Begin to save a session's state.

    Args:
        opening: the session, as far as it has come.
        layout: the devices.
        score: the accuracy on `val` in this state; None: not measured.
    """
    clock = opening.clock.record()
    record = {"last_train": opening.last_train, "window": opening.window, "clock": clock}
    opening.store.save(opening.step, state_record(layout.gather(opening.state)), record, score=score)


def _check_data(directory: RunDirectory, manifest: dict[str, Any], dataset: Dataset) -> None:
    if manifest["data_fingerprint"] is None:
        raise InputError(
            f"`{directory.path}` was imported and never trained, so there is nothing to resume. Begin with "
            f"its weights by `ctt train --init {shlex.quote(str(directory.path))}`."
        )
    if manifest["data_fingerprint"] != dataset.fingerprint:
        raise InputError(
            f"`{directory.path}` was trained on data with the fingerprint {manifest['data_fingerprint'][:12]}, got "
            f"{dataset.fingerprint[:12]}. Pass --data.dir of the same data."
        )


def _note_changes(directory: RunDirectory, opening: Opening, layout: Layout, say: Callable[[str], None]) -> None:
    """Say, and keep, that what follows is not bit-equal to an undisturbed run, if it is not."""
    changes, mesh = environment_changes(opening.manifest), dict(layout.mesh.shape)
    then = opening.manifest.get("mesh", {"data": 1, "fsdp": 1})
    if then != mesh:
        changes.append(f"mesh: {_write_mesh(then)} then, {_write_mesh(mesh)} now")
    if not changes:
        return
    say(f"Not bit-equal to an undisturbed run, since this machine differs: {'; '.join(changes)}.")
    sessions = [*opening.manifest.get("resumed_elsewhere", []), {"step": opening.step, "changes": changes}]
    opening.manifest = {**opening.manifest, "resumed_elsewhere": sessions}
    if is_leader():
        directory.write_json("manifest.json", opening.manifest)


def _write_mesh(mesh: dict[str, int]) -> str:
    return " x ".join(f"{name} {size}" for name, size in mesh.items())
