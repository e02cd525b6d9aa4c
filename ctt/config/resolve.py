"""From what was written to what is run: derived values filled in, every field checked once."""

import dataclasses

from ctt.config.check import check_fields
from ctt.config.compatibility import check_combinations
from ctt.config.dataset import KNOWN_DATASETS, find_facts
from ctt.config.error import InputError
from ctt.config.schema import Config, DataConfig

DEFAULT_STEPS = 4
"""Time steps of a model with one stage."""


def resolve_config(config: Config) -> Config:
    """Fill in the fields that are derived from others, and check every field.

    Args:
        config: a config as a file or the command line gives it.

    Returns:
        The same config in which no derived field is ``None``; resolving it again changes nothing.

    Raises:
        InputError: a field, or a combination of fields, cannot be used.

    Example:
        >>> resolve_config(Config()).splitting.horizon
        4.0
    """
    data = _resolve_data(config.data)
    splitting, controls = config.splitting, config.controls
    if splitting.steps is None:
        stages = config.model.stages.steps
        splitting = dataclasses.replace(splitting, steps=sum(stages) if config.model.name == "cvt" else DEFAULT_STEPS)
    assert splitting.steps is not None
    if splitting.horizon is None:
        splitting = dataclasses.replace(splitting, horizon=float(splitting.steps))
    if controls.knots is None:
        controls = dataclasses.replace(controls, knots=splitting.steps)
    normalization = config.normalization
    if normalization.shared is None:
        normalization = dataclasses.replace(normalization, shared=normalization.placement == "tangent")
    resolved = dataclasses.replace(
        config,
        name=config.name or "run",
        data=data,
        normalization=normalization,
        splitting=splitting,
        controls=controls,
    )
    check_fields(resolved)
    check_combinations(resolved)
    return resolved


def _resolve_data(data: DataConfig) -> DataConfig:
    facts = find_facts(data.name)
    if facts is None:
        for field in ("image_shape", "num_classes", "val_size"):
            if getattr(data, field) is None:
                raise InputError(
                    f"`data.{field}` must be given for the data set `{data.name}`, got None. Set it in the config "
                    f"file or pass --data.{field}; it is known only for {', '.join(KNOWN_DATASETS)}."
                )
    shape = data.image_shape or (facts.image_shape if facts else (0, 0, 0))
    known = facts is not None and len(facts.mean) == shape[2]
    values = {
        "image_shape": shape,
        "num_classes": facts.num_classes if facts and data.num_classes is None else data.num_classes,
        "mean": data.mean or (facts.mean if facts and known else (0.5,) * shape[2]),
        "std": data.std or (facts.std if facts and known else (0.25,) * shape[2]),
    }
    if facts is not None and data.val_size is None:
        values["val_size"] = facts.val_size
    return dataclasses.replace(data, **values)
