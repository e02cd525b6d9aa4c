"""One training run: all of the others."""

from dataclasses import dataclass, field

from ctt.config.schema.data import AugmentationConfig, DataConfig
from ctt.config.schema.devices import DevicesConfig
from ctt.config.schema.logging import LoggingConfig
from ctt.config.schema.model import ModelConfig, NormalizationConfig
from ctt.config.schema.time import ControlsConfig, GradientConfig, SplittingConfig
from ctt.config.schema.training import OptimizerConfig, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Config:
    """One training run."""

    name: str | None = None
    """Name of the run and of its default folder under `runs/`. None: the config file's name."""
    seed: int = 0
    """Seed of the initial weights, batches, augmentation and dropout, in [0, 2^32)."""
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    normalization: NormalizationConfig = field(default_factory=NormalizationConfig)
    splitting: SplittingConfig = field(default_factory=SplittingConfig)
    controls: ControlsConfig = field(default_factory=ControlsConfig)
    gradient: GradientConfig = field(default_factory=GradientConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
