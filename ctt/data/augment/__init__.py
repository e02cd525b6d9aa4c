"""Augmentation inside the compiled step, each example drawn from a key of its own.

`augment` (pipeline) applies what a config asks for, in the order in which the recipes of timm do: crop and flip
(geometry), RandAugment and colour jitter (color, with the operations in operation, blend and affine), random erasing
(occlusion), and last what takes two images: mixup and cutmix (mixture), which turn labels into shares of classes.

What an example becomes depends on its key, on its place in the batch and, for mixtures, on its partner: never on the
number of devices or hosts, on how the batch is cut up, on whether it is compiled, or on the steps a dispatch takes.
That is by construction: choices are whole numbers (draw), pixels are whole numbers, and where there are fractions
(mixtures) every product is exact.
"""

from ctt.data.augment.pipeline import Augmented, augment

__all__ = ["Augmented", "augment"]
