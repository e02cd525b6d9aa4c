"""What is run: frozen, keyword-only, nested dataclasses.

The docstring under each field is the help text of the command line. ``None`` means that the value is derived from other
fields (each says from which) when the config is resolved.

* `run`: `Config`, all of a run.
* `data`: which images, and how they are split and augmented.
* `model`: the lift, the operators of the right-hand side and the read-out; normalisation.
* `time`: the splitting and its grid, the weights as functions of time, the gradient method.
* `training`: the optimiser and the loop.
* `devices`: the machines that share a run.
* `logging`: where the measures go.
"""

from ctt.config.schema.data import AugmentationConfig, DataConfig
from ctt.config.schema.devices import DevicesConfig
from ctt.config.schema.logging import LoggingConfig
from ctt.config.schema.model import ModelConfig, NormalizationConfig, StagesConfig
from ctt.config.schema.run import Config
from ctt.config.schema.time import ControlsConfig, GradientConfig, SplittingConfig
from ctt.config.schema.training import OptimizerConfig, TrainingConfig

__all__ = [
    "AugmentationConfig",
    "Config",
    "ControlsConfig",
    "DataConfig",
    "DevicesConfig",
    "GradientConfig",
    "LoggingConfig",
    "ModelConfig",
    "NormalizationConfig",
    "OptimizerConfig",
    "SplittingConfig",
    "StagesConfig",
    "TrainingConfig",
]
