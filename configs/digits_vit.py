"""A small ViT on scikit-learn's bundled digits (8x8 grey images, 1,257 / 180 / 360): the quick start.

    ctt train configs/digits_vit.py
    ctt train configs/digits_vit.py --splitting.scheme strang

Four time steps of length 1: with lie + euler this is the ordinary pre-norm ViT of four layers. Expected: 98 to 99 % on
test, in about a minute on two CPU cores (RESULTS.md has the record).
"""

from ctt.config import Config, DataConfig, ModelConfig, OptimizerConfig, SplittingConfig, TrainingConfig


def get_config() -> Config:
    return Config(
        data=DataConfig(name="digits"),
        model=ModelConfig(patch_size=4, width=64, num_heads=4, feedforward_width=128, dropout=0.2),
        splitting=SplittingConfig(scheme="lie", substep="euler", steps=4),
        optimizer=OptimizerConfig(learning_rate=4e-3, weight_decay=1.0),
        training=TrainingConfig(epochs=84, batch_size=64, eval_batch_size=180, log_every=100),
    )
