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
    then, now = (flatten_config(c) for c in (directory.read_config(), config))
    changed = [f"{key} ({then[key]} then, {now[key]} now)" for key in now if then[key] != now[key]]
    changed = [text for text in changed if text.partition(" ")[0] not in FREE_ON_RESUME]
    if changed:
        quoted = shlex.quote(str(directory.path))
        raise InputError(
            f"`{directory.path}` was made by another config: {', '.join(changed)}. Resume it by "
            f"`ctt train --resume {quoted}` alone, or start a new run with another --out."
        )
