"""A run that was not trained here: a model with its weights as the checkpoint of step 0."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.models.classifier import Classifier
from ctt.training.checkpoint import CheckpointStore
from ctt.training.directory import RunDirectory
from ctt.training.manifest import describe_run
from ctt.training.state import state_record
from ctt.training.step import build_update


def create_run(
    config: Config, model: Classifier, out: str | Path, *, class_names: Sequence[str], origin: dict[str, Any]
) -> Path:
    """Write a run directory, whole or not at all, that can be evaluated, integrated otherwise, and trained on.

    Args:
        config: the resolved config of the model.
        model: the model with its weights.
        out: the run directory, new or empty.
        class_names: a name a class.
        origin: where the weights came from, as JSON values.

    Returns:
        The run directory.

    Raises:
        InputError: the folder holds something already, or cannot be made.
    """
    RunDirectory(out).check_free()
    path = Path(out).resolve()
    manifest = {
        **describe_run(),
        "data_fingerprint": None,
        "split_sizes": None,
        "class_names": list(class_names),
        "origin": origin,
    }
    state, _ = build_update(config, model, 2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside its place and moved at the end: a folder without weights would be a run that nobody can go on with.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
            partial = RunDirectory(Path(temporary) / "run")
            partial.create(config, manifest)
            store = CheckpointStore(partial.checkpoints, run_id=manifest["run_id"])
            try:
                store.save(0, state_record(state), {})
                store.wait()
            finally:
                store.close()
            if path.exists():
                path.rmdir()  # Empty, as `check_free` saw.
            os.replace(partial.path, path)
    except OSError as error:
        raise InputError(f"`{out}` cannot be written ({error.strerror}). Choose another --out.") from error
    return Path(out)
