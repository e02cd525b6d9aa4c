"""A ViT of 0.39 M parameters on CIFAR-10, small enough for two CPU cores.

    ctt train configs/cifar10_vit_tiny.py --data.dir ../shared/data/tfds
    ctt train configs/cifar10_vit_tiny.py --data.dir ../shared/data/tfds --splitting.scheme strang

Expected: about 56 % (lie) and 58 % (strang) on test after 3 epochs of a JPEG copy of CIFAR-10, an epoch in about five
minutes for lie (RESULTS.md has the record).

ReLU is the projection onto S2 of the paper, and on a CPU its gradient costs half of GELU's.
"""

from ctt.config import (
    AugmentationConfig,
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    SplittingConfig,
    TrainingConfig,
)


def get_config() -> Config:
    return Config(
        data=DataConfig(name="cifar10"),
        augmentation=AugmentationConfig(flip=True),
        model=ModelConfig(patch_size=4, width=96, num_heads=4, feedforward_width=192, activation="relu"),
        splitting=SplittingConfig(scheme="lie", substep="euler", steps=5),
        optimizer=OptimizerConfig(learning_rate=2e-3, weight_decay=0.05),
        training=TrainingConfig(epochs=3, batch_size=64, log_every=100),
    )
