"""What may change when a run goes on."""

import dataclasses
import shlex

from ctt.config.error import InputError
from ctt.config.schema import Config, DevicesConfig
from ctt.config.serialize import flatten_config
from ctt.training.directory import RunDirectory

FREE_ON_RESUME = frozenset(
    {
        "name",
        "data.dir",
        "data.cache",
        "data.input",
        "training.log_every",
        "training.eval_every",
        "training.checkpoint_every",
    }
    | {"training.keep_checkpoints", "training.eval_batch_size", "training.certify", "training.log_splitting_error"}
    | {"training.steps_per_dispatch"}
    | {f"devices.{field.name}" for field in dataclasses.fields(DevicesConfig)}
    | {"logging.tensorboard", "logging.wandb"}
)
"""Fields that may change when a run is resumed: they say where and how often, not what is computed."""


def check_same_config(directory: RunDirectory, config: Config) -> None:
    """Check that a run is resumed with the config that it was begun with.

    Args:
        directory: the run directory.
        config: the resolved config now.

    Raises:
        InputError: a field differs that says what is computed.
    """
    changed = _find_changes(directory.read_config(), config)
    if changed:
        quoted = shlex.quote(str(directory.path))
        raise InputError(
            f"`{directory.path}` was made by another config: {', '.join(changed)}. Resume it by "
            f"`ctt train --resume {quoted}` alone, or start a new run with another --out."
        )


def is_same_config(directory: RunDirectory, config: Config) -> bool:
    """Return whether a run was begun with a config, as far as it says what is computed.

    Args:
        directory: the run directory.
        config: a resolved config.
    """
    try:
        return not _find_changes(directory.read_config(), config)
    except InputError:  # Damaged, or of another version.
        return False


def _find_changes(then: Config, now: Config) -> list[str]:
    old, new = flatten_config(then), flatten_config(now)
    return [
        f"{key} ({old[key]} then, {new[key]} now)" for key in new if old[key] != new[key] and key not in FREE_ON_RESUME
    ]
