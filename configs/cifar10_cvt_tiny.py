"""A CvT of about 0.39 M parameters on CIFAR-10, small enough for two CPU cores."""

from ctt.config import Config, DataConfig, ModelConfig, OptimizerConfig, SplittingConfig, StagesConfig, TrainingConfig


def get_config() -> Config:
    return Config(
        data=DataConfig(name="cifar10", crop_padding=4, flip=True),
        model=ModelConfig(
            name="cvt",
            activation="relu",
            stages=StagesConfig(
                widths=(48, 128),
                num_heads=(2, 4),
                feedforward_widths=(96, 256),
                steps=(1, 2),
                kernels=(3, 3),
                strides=(2, 2),
                paddings=(1, 1),
                projection_kernels=(3, 3),
                key_value_strides=(2, 2),
                key_value_paddings=(1, 1),
            ),
        ),
        splitting=SplittingConfig(scheme="lie", substep="euler"),
        optimizer=OptimizerConfig(learning_rate=2e-3, weight_decay=0.05),
        training=TrainingConfig(epochs=7, batch_size=64, log_every=100),
    )
