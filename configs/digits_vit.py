"""A small ViT on scikit-learn's bundled digits (8x8 grey images, 1,257 / 180 / 360): the quick start.

    ctt train configs/digits_vit.py
    ctt train configs/digits_vit.py --splitting.scheme strang

Four time steps with step 1: with lie + euler this is the ordinary pre-norm ViT of four layers.
"""

from ctt.config import Config, DataConfig, ModelConfig, OptimizerConfig, SplittingConfig, TrainingConfig


def get_config() -> Config:
    return Config(
        data=DataConfig(name="digits"),
        model=ModelConfig(patch_size=2, width=64, num_heads=4, feedforward_width=128, dropout=0.1),
        splitting=SplittingConfig(scheme="lie", substep="euler", steps=4),
        optimizer=OptimizerConfig(learning_rate=4e-3, weight_decay=1.0),
        training=TrainingConfig(epochs=42, batch_size=64),
    )
