"""Checkpoints by Orbax: written in the background, atomic, the newest few and the best kept, verified when read."""

import functools
import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from ctt.config.error import InputError, RunStoppedError
from ctt.training.devices import is_leader, wait_for_all
from ctt.training.digest import tree_sha256

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

T = TypeVar("T")

_PATIENCE = 600
"""Seconds after which a save that does not end, or a process that does not come to one, is an error."""


class SaveError(RunStoppedError):
    """A checkpoint could not be written; the older ones are kept."""

    exit_status = 2


class CheckpointStore:
    """The folder `checkpoints/` of a run.

    A checkpoint is written beside its final name and renamed, so one that exists is whole; its record holds the sha256
    of all that was saved and the run's identity, so one that was damaged later or put there from elsewhere is noticed.
    It holds every array whole, however many devices it was cut up among, and can be restored onto any number of them.
    """

    def __init__(self, directory: Path, *, run_id: str, keep: int | None = None):
        """Open the folder.

        Args:
            directory: the folder; made at the first save.
            run_id: tells the run's own checkpoints from those of another run.
            keep: how many of the newest are kept, and the one of the best score besides; None: all.
        """
        self.directory = directory.absolute()
        self._run_id, self._keep = run_id, keep
        self._manager: ocp.CheckpointManager | None = None
        self._begun: int | None = None
        self._scores: dict[int, float | None] = {}  # Of this session; those of earlier ones are on the disk.

    def _open(self) -> ocp.CheckpointManager:
        if self._manager is None:
            # Orbax logs each error of its threads with a traceback; they are raised here, in one sentence.
            for name in ("absl", "asyncio"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
            _hush_event_loops()
            self._manager = ocp.CheckpointManager(self.directory, options=self._options())
        return self._manager

    def _options(self) -> ocp.CheckpointManagerOptions:
        policy = None if self._keep is None else _LatestAndBest(self._keep, self.score)
        return ocp.CheckpointManagerOptions(
            preservation_policy=policy,
            cleanup_tmp_directories=self._keep is not None,  # Left by a kill; a reader leaves them alone.
            async_options=ocp.AsyncOptions(timeout_secs=_PATIENCE),
        )

    def score(self, step: int) -> float | None:
        """Return the score that a checkpoint was saved with, or None.

        Args:
            step: of the checkpoint.
        """
        if step in self._scores:
            return self._scores[step]
        try:
            return json.loads((self.directory / str(step) / "record" / "metadata").read_text()).get("score")
        except (OSError, ValueError, AttributeError):
            return None  # Damaged, which is said when it is read.

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, in their order."""
        return sorted(self._open().all_steps()) if self.directory.is_dir() else []

    def latest_step(self) -> int | None:
        """Return the step of the newest checkpoint, or None."""
        return max(self.steps(), default=None)

    def best_step(self) -> int | None:
        """Return the step of the checkpoint with the largest score, the first of equals; None: none has a score."""
        return _find_best(self.steps(), self.score)

    def save(self, step: int, state: Any, record: dict[str, Any], *, score: float | None = None) -> None:
        """Begin to save a state, and return; saving a step again changes nothing.

        Args:
            step: number of finished updates.
            state: a pytree of arrays, whole on this host.
            record: JSON values that belong to it.
            score: what the best checkpoint has most of; None: this one has none.

        Raises:
            SaveError: this or the save before it failed.
        """
        if step == self.latest_step():
            return
        self.wait()  # For the save before this one, whose error is its own.
        self._begun = step
        # Copies of both, since they are written while the run goes on.
        state = jax.tree.map(np.array, jax.device_get(state))
        record = json.loads(json.dumps({**record, "score": score}))
        record |= {"run_id": self._run_id, "sha256": self._digest(state, record)}
        self._scores[step] = score
        try:
            self._try_to_write()
            self._open().save(
                step,
                args=ocp.args.Composite(state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)),
            )
        except Exception as error:
            raise self._explain(error) from error

    def _try_to_write(self) -> None:
        """Make a folder and remove it.

        Where Orbax cannot make one, the threads that would write into it are not told: they wait for its signal until
        their time is out (`orbax.checkpoint._src.futures.future._SignalingThread.run`).
        """
        if is_leader():
            self.directory.mkdir(parents=True, exist_ok=True)
            os.rmdir(tempfile.mkdtemp(prefix=".writable-", dir=self.directory))

    def wait(self) -> None:
        """Wait until what was begun is on the disk.

        Raises:
            SaveError: it could not be written.
        """
        if self._manager is None:
            return
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> SaveError:
        reason: BaseException = error
        while not isinstance(reason, OSError) and (inner := reason.__cause__ or reason.__context__) is not None:
            reason = inner
        text = " ".join(str(reason).split())[:200]
        if "No space left" in str(reason):
            text = "no space left on the device"
        found = os.listdir(self.directory) if self.directory.is_dir() else []
        newest = max((int(name) for name in found if name.isdecimal()), default=None)
        kept = f"the one of step {newest} is kept" if newest is not None else "there is none before it"
        return SaveError(
            f"The checkpoint of step {self._begun} cannot be written to `{self.directory}` ({text}); {kept}. Mend "
            "that, and go on by --resume."
        )

    def restore(self, template: T, step: int | None = None) -> tuple[T, dict[str, Any]]:
        """Return a state and its record.

        Args:
            template: a pytree with the shapes and types of the state.
            step: of the checkpoint; None: the newest.

        Returns:
            The state as arrays of numpy, and the record.

        Raises:
            InputError: there is no such checkpoint, it cannot be read, it is damaged, or it does not fit.
        """
        steps = self.steps()
        if not steps:
            raise InputError(f"`{self.directory}` holds no checkpoint. Train the run first.")
        chosen = steps[-1] if step is None else step
        if chosen not in steps:
            raise InputError(
                f"`{self.directory}` holds no checkpoint of step {chosen}, but of "
                f"{', '.join(map(str, steps))}. Choose one of these."
            )
        try:
            return self._read(template, chosen)
        except _DamageError as error:
            others = [str(other) for other in steps if other != chosen]
            remedy = f"to use the one of step {others[-1]}" if others else "to start this run again from step 0"
            raise InputError(
                f"{self._describe(chosen, error)} Nothing was changed; move that folder away {remedy}."
            ) from error

    def restore_newest(self, template: T, warn: Callable[[str], None]) -> tuple[T, dict[str, Any]] | None:
        """Return the newest state that is sound, and its record; damaged checkpoints are put aside.

        Args:
            template: a pytree with the shapes and types of the state.
            warn: told of each checkpoint that is skipped.

        Returns:
            See `restore`; None: there is no checkpoint at all.

        Raises:
            InputError: there are checkpoints, and none can be read.
        """
        steps = self.steps()
        damaged: list[int] = []
        for step in reversed(steps):
            try:
                found = self._read(template, step)
            except _DamageError as error:
                warn(f"Warning: {self._describe(step, error)} An older one is looked for.")
                damaged.append(step)
                continue
            self._put_aside(damaged)
            return found
        if steps:
            raise InputError(
                f"None of the checkpoints in `{self.directory}` can be read (steps {', '.join(map(str, steps))}). "
                "Nothing was changed; start a new run with another --out."
            )
        return None

    def _put_aside(self, steps: list[int]) -> None:
        """Rename damaged checkpoints, so that the run can save these steps again and nothing is overwritten."""
        if not steps:
            return
        if is_leader():
            folder = self.directory.with_name("damaged_checkpoints")
            folder.mkdir(exist_ok=True)
            for step in steps:
                names = (f"{step}" if number == 1 else f"{step}-{number}" for number in range(1, 10_000))
                os.replace(self.directory / str(step), next(folder / n for n in names if not (folder / n).exists()))
        wait_for_all("putting damaged checkpoints aside", timeout=_PATIENCE)
        self.close()

    def _read(self, template: T, step: int) -> tuple[T, dict[str, Any]]:
        abstract = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), template)
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), record=ocp.args.JsonRestore())
        try:
            restored = self._open().restore(step, args=args)
            state, record = restored["state"], restored["record"]
            _require_fit(state, template)
            run_id, digest = record.pop("run_id"), record.pop("sha256")
            is_sound = digest == self._digest(state, record)
        except Exception as error:  # Orbax, tensorstore and the file system each raise their own kinds.
            raise _DamageError(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
        if run_id != self._run_id:
            raise _DamageError("it was saved by another run")
        if not is_sound:
            raise _DamageError("its bytes are not the ones that were saved")
        return state, record

    def close(self) -> None:
        """Let go of the folder, after what was begun is on the disk.

        Raises:
            SaveError: it could not be written.
        """
        manager, self._manager = self._manager, None
        if manager is not None:
            try:
                manager.close()
            except Exception as error:
                raise self._explain(error) from error

    @staticmethod
    def _digest(state: Any, record: dict[str, Any]) -> str:
        text = json.dumps(record, sort_keys=True) + tree_sha256(state)
        return hashlib.sha256(text.encode()).hexdigest()

    def _describe(self, step: int, error: Exception) -> str:
        return f"The checkpoint `{self.directory / str(step)}` is truncated, damaged or of another run ({error})."


class _DamageError(Exception):
    """A checkpoint cannot be used."""


@functools.cache
def _hush_event_loops() -> None:
    """Keep Python from printing what tensorstore reports to event loops that Orbax closed after an error."""
    show = sys.unraisablehook

    def hook(unraisable: "UnraisableHookArgs") -> None:
        if not (isinstance(unraisable.exc_value, RuntimeError) and "loop is closed" in str(unraisable.exc_value)):
            show(unraisable)

    sys.unraisablehook = hook


def _require_fit(state: Any, template: Any) -> None:
    for (path, leaf), wanted in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(template), strict=True):
        if (leaf.shape, leaf.dtype) != (wanted.shape, wanted.dtype):
            raise ValueError(
                f"{jax.tree_util.keystr(path)} is {leaf.dtype}{list(leaf.shape)}, where the config has "
                f"{wanted.dtype}{list(wanted.shape)}"
            )


def _find_best(steps: Sequence[int], score: Callable[[int], float | None]) -> int | None:
    scores = {step: value for step in sorted(steps) if (value := score(step)) is not None}
    return max(scores, key=lambda step: scores[step], default=None)


class _LatestAndBest:
    """Keeps the newest few checkpoints, and the one of the best score."""

    def __init__(self, keep: int, score: Callable[[int], float | None]):
        self._keep, self._score = keep, score

    def should_preserve(
        self, checkpoints: Sequence[checkpoint_managers.PolicyCheckpointInfo], *, context: Any
    ) -> list[bool]:
        del context
        steps = [info.step for info in checkpoints]
        kept = {*sorted(steps)[-self._keep :], _find_best(steps, self._score)}
        return [step in kept for step in steps]
