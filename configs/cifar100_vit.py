"""ViT-Lite-7/4 on CIFAR-100: `cifar10_vit.py` with 100 classes.

    ctt train configs/cifar100_vit.py --data.dir DIR

Hassani et al., arXiv:2104.05704, report 69.75 % (best of 4 runs, original pixels) with augmentation that is not here
yet: expect less. For one accelerator; not measured yet.
"""

import dataclasses

from cifar10_vit import get_config as get_cifar10_config

from ctt.config import Config


def get_config() -> Config:
    base = get_cifar10_config()
    return dataclasses.replace(base, data=dataclasses.replace(base.data, name="cifar100"))
