"""The network and the recipe of `cifar10_vit.py`, integrated by Strang's splitting with second-order substeps.

    ctt train configs/cifar10_vit_strang.py --data.dir DIR

The same parameters and the same equation; three times the evaluations of the fields (six a step instead of two), and
second order in the step where lie + euler is first order. The states between the steps alone are kept (`remat`).

Expected on one accelerator, estimated and not measured, with the assumptions of `cifar10_vit.py`: four times its time,
11 minutes of an A100 at 40 % and two hours at 4 %; 0.6 GiB of memory for an update. No accuracy is published for it.
"""

import dataclasses

from cifar10_vit import get_config as get_lie_config

from ctt.config import Config


def get_config() -> Config:
    base = get_lie_config()
    splitting = dataclasses.replace(base.splitting, scheme="strang", substep="midpoint")
    return dataclasses.replace(base, splitting=splitting, gradient=dataclasses.replace(base.gradient, method="remat"))
