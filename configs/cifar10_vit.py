"""ViT-Lite-7/4 on CIFAR-10: the plain ViT of the compact-Transformers class, 3.7 M parameters, 200 epochs.

    ctt train configs/cifar10_vit.py --data.dir DIR

Paper: Dosovitskiy et al., arXiv:2010.11929; sizes and recipe of ViT-Lite-7/4 in Hassani et al., arXiv:2104.05704,
whose authors report 91.38 % (best of 4 runs, original pixels) with RandAugment, mixup and cutmix, which are not here
yet: expect less. For one accelerator; not measured yet.
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
        augmentation=AugmentationConfig(crop_padding=4, flip=True),
        model=ModelConfig(patch_size=4, width=256, num_heads=4, feedforward_width=512, pooling="cls", dropout=0.1),
        splitting=SplittingConfig(scheme="lie", substep="euler", steps=7),
        optimizer=OptimizerConfig(learning_rate=5.5e-4, weight_decay=0.06, warmup_fraction=0.05, label_smoothing=0.1),
        training=TrainingConfig(epochs=200, batch_size=128, log_every=100),
    )
