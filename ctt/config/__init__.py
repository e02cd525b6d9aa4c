"""What is run: frozen dataclasses, free of jax, so that ``ctt --help`` answers at once.

* `schema`: the dataclasses; the docstring under a field is its help text.
* `name`: the names that the command line offers (schemes, bases, methods).
* `dataset`: facts about known data sets.
* `load`: config files; `arguments`: command-line words; `resolve`: derived fields.
* `preset`: models of published sizes by name.
* `stage`: one stage of a CvT as a config of its own.
* `check`, `stage_check`: every field by itself; `compatibility`: combinations that cannot be, and what has no limit.
* `serialize`: `config.json` of a run directory.
* `error`: `InputError`, the one exception for wrong input.
"""

from ctt.config.error import InputError
from ctt.config.load import load_config
from ctt.config.preset import PRESETS, preset
from ctt.config.resolve import resolve_config
from ctt.config.schema import (
    AugmentationConfig,
    Config,
    ControlsConfig,
    DataConfig,
    DevicesConfig,
    GradientConfig,
    LoggingConfig,
    ModelConfig,
    NormalizationConfig,
    OptimizerConfig,
    SplittingConfig,
    StagesConfig,
    TrainingConfig,
)
from ctt.config.serialize import config_from_dict, config_to_dict

__all__ = [
    "PRESETS",
    "AugmentationConfig",
    "Config",
    "ControlsConfig",
    "DataConfig",
    "DevicesConfig",
    "GradientConfig",
    "InputError",
    "LoggingConfig",
    "ModelConfig",
    "NormalizationConfig",
    "OptimizerConfig",
    "SplittingConfig",
    "StagesConfig",
    "TrainingConfig",
    "config_from_dict",
    "config_to_dict",
    "load_config",
    "preset",
    "resolve_config",
]
