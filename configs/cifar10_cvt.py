"""A CvT of 3.7 M parameters on CIFAR-10, from scratch: meshes of 16 x 16, 8 x 8 and 4 x 4 tokens, 200 epochs.

    ctt train configs/cifar10_cvt.py --data.dir DIR

Paper: Wu et al., arXiv:2103.15808, whose smallest network has 20 M parameters and a stride of 4 at the entrance, made
for 224 x 224 pixels: from scratch on CIFAR-10 a user reports 79.6 % (microsoft/CvT #25). Here the first stride is 2,
and the projections are normalised token by token. Stride 1, four times the tokens: --model.stages.strides 1 2 2.
For one accelerator; not measured yet.
"""

import dataclasses

from ctt.config import AugmentationConfig, Config, OptimizerConfig, TrainingConfig, preset


def get_config() -> Config:
    base = preset("cvt_cifar")
    return dataclasses.replace(
        base,
        name=None,
        augmentation=AugmentationConfig(crop_padding=4, flip=True),
        model=dataclasses.replace(base.model, dropout=0.1),
        optimizer=OptimizerConfig(learning_rate=5.5e-4, weight_decay=0.06, warmup_fraction=0.05, label_smoothing=0.1),
        training=TrainingConfig(epochs=200, batch_size=128, log_every=100),
    )
