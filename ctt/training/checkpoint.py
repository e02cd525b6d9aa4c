"""Checkpoints by Orbax: atomic, the newest few kept, verified when read."""

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp

from ctt.config.error import InputError
from ctt.training.digest import tree_sha256

T = TypeVar("T")


class CheckpointStore:
    """The folder `checkpoints/` of a run.

    A checkpoint is written beside its final name and renamed, so one that exists is whole; its
    record holds the sha256 of all that was saved and the run's identity, so one that was damaged later or
    put there from elsewhere is noticed.
    """

    def __init__(self, directory: Path, *, run_id: str, keep: int | None = None):
        """Open the folder.

        Args:
            directory: the folder; made at the first save.
            run_id: tells the run's own checkpoints from those of another run.
            keep: how many of the newest are kept; None: all.
        """
        self.directory = directory.absolute()
        self._run_id = run_id
        self._keep = keep
        self._manager: ocp.CheckpointManager | None = None

    def _open(self) -> ocp.CheckpointManager:
        if self._manager is None:
            options = ocp.CheckpointManagerOptions(max_to_keep=self._keep, enable_async_checkpointing=False)
            self._manager = ocp.CheckpointManager(self.directory, options=options)
        return self._manager

    def latest_step(self) -> int | None:
        """Return the step of the newest checkpoint, or None."""
        return self._open().latest_step() if self.directory.is_dir() else None

    def save(self, step: int, state: Any, record: dict[str, Any]) -> None:
        """Save a state; saving a step again changes nothing.

        Args:
            step: number of finished updates.
            state: a pytree of arrays.
            record: JSON values that belong to it.
        """
        manager = self._open()
        if step == manager.latest_step():
            return
        manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state),
                record=ocp.args.JsonSave({**record, "run_id": self._run_id, "sha256": self._digest(state, record)}),
            ),
        )
        manager.wait_until_finished()

    def restore(self, template: T) -> tuple[T, dict[str, Any]]:
        """Return the newest state and its record.

        Args:
            template: a pytree with the shapes and types of the state.

        Raises:
            InputError: there is no checkpoint, it cannot be read, it is damaged, or it does not fit.
        """
        step = self.latest_step()
        if step is None:
            raise InputError(f"`{self.directory}` holds no checkpoint. Train the run first.")
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), template)
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), record=ocp.args.JsonRestore())
        try:
            restored = self._open().restore(step, args=args)
            state, record = restored["state"], restored["record"]
            run_id, digest = record.pop("run_id"), record.pop("sha256")
            is_sound = digest == self._digest(state, record)
        except Exception as error:  # Orbax, tensorstore and the file system each raise their own kinds.
            reason = " ".join(str(error).split())[:200]
            raise InputError(self._damage(step, f"{type(error).__name__}: {reason}")) from error
        if run_id != self._run_id:
            raise InputError(self._damage(step, "it was saved by another run"))
        if not is_sound:
            raise InputError(self._damage(step, "its bytes are not the ones that were saved"))
        return state, record

    @staticmethod
    def _digest(state: Any, record: dict[str, Any]) -> str:
        text = json.dumps(record, sort_keys=True) + tree_sha256(state)
        return hashlib.sha256(text.encode()).hexdigest()

    def _damage(self, step: int, reason: str) -> str:
        others = [str(s) for s in self._open().all_steps() if s != step]
        remedy = f"to use the one of step {others[-1]}" if others else "to start this run again from step 0"
        return (
            f"The checkpoint `{self.directory / str(step)}` is truncated, damaged or of another run ({reason}). "
            f"Nothing was changed; move that folder away {remedy}."
        )
