"""The CvT of `cifar10_cvt.py` on CIFAR-100, with 100 classes.

    ctt train configs/cifar100_cvt.py --data.dir DIR

For one accelerator; not measured yet.
"""

import dataclasses

from cifar10_cvt import get_config as get_cifar10_config

from ctt.config import Config


def get_config() -> Config:
    base = get_cifar10_config()
    return dataclasses.replace(base, data=dataclasses.replace(base.data, name="cifar100"))
