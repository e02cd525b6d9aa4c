"""The CvT of `cifar10_cvt.py` on CIFAR-100, with 100 classes and the recipe of `cifar100_vit.py`.

    ctt train configs/cifar100_cvt.py --data.dir DIR

No accuracy is published for a CvT of this size; the mark is to be above the 69.75 % of ViT-Lite-7/4 (original pixels).
Not run yet. Time and memory on one accelerator, estimated and not measured: those of `cifar10_cvt.py`.
"""

import dataclasses

from cifar10_cvt import get_config as get_cifar10_config
from cifar100_vit import get_config as get_recipe

from ctt.config import Config


def get_config() -> Config:
    recipe = get_recipe()
    return dataclasses.replace(get_cifar10_config(), data=recipe.data, optimizer=recipe.optimizer)
