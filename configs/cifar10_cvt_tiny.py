"""A CvT of 0.37 M parameters on CIFAR-10, small enough for two CPU cores.

    ctt train configs/cifar10_cvt_tiny.py --data.dir ../shared/data/tfds

Three stages of one step each, on meshes of 16 x 16, 8 x 8 and 4 x 4 tokens: about as many images a second as PyTorch
gives CCT-2/3x2, and more than the ViT of `cifar10_vit_tiny.py`, with about its parameters. The projections have no
normalisation of their own, which costs nothing here and is a seventh of the time.

Expected on the JPEG copy of CIFAR-10 (fingerprint 9fe99e3e2e25): 79.3 % on test after 17,666 steps, 28 minutes alone on
two CPU cores (seed 0). RESULTS.md has the record, beside the tiny ViT and CCT-2/3x2.
"""

from ctt.config import (
    AugmentationConfig,
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    SplittingConfig,
    StagesConfig,
    TrainingConfig,
)


def get_config() -> Config:
    return Config(
        data=DataConfig(name="cifar10"),
        augmentation=AugmentationConfig(crop_padding=4, flip=True),
        model=ModelConfig(
            name="cvt",
            activation="relu",
            convolution_normalization="none",
            stages=StagesConfig(
                widths=(32, 96, 128),
                num_heads=(1, 2, 4),
                feedforward_widths=(64, 192, 256),
                steps=(1, 1, 1),
                kernels=(5, 3, 3),
                strides=(2, 2, 2),
                paddings=(2, 1, 1),
                projection_kernels=(3, 3, 3),
                key_value_strides=(4, 2, 1),
                key_value_paddings=(1, 1, 1),
            ),
        ),
        splitting=SplittingConfig(scheme="lie", substep="euler"),
        optimizer=OptimizerConfig(learning_rate=2e-3, weight_decay=0.05),
        training=TrainingConfig(epochs=25, batch_size=64, log_every=100),
    )
