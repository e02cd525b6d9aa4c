"""A CvT of 3.7 M parameters on CIFAR-10, from scratch: meshes of 16 x 16, 8 x 8 and 4 x 4 tokens, 300 epochs.

    ctt train configs/cifar10_cvt.py --data.dir DIR

Paper: Wu et al., arXiv:2103.15808, whose smallest network has 20 M parameters and a stride of 4 at the entrance, made
for 224 x 224 pixels: from scratch on CIFAR-10 a user reports 79.6 % (microsoft/CvT #25). Here the first stride is 2,
and the projections are normalised token by token. Stride 1, four times the tokens: --model.stages.strides 1 2 2.

The recipe is that of `cifar10_vit.py`. No accuracy is published for a CvT of this size; the mark is to be above the
91.38 % of ViT-Lite-7/4, which has as many parameters (original pixels). Not run to the end yet.

Expected on one accelerator, estimated and not measured, with the assumptions of `cifar10_vit.py`: 105,300 updates of 79
GFLOP are 8.3e15 FLOP, a minute of an A100 at a utilisation of 40 % and 11 minutes at 4 %; 1.7 GiB of memory for an
update, 0.2 GiB for weights, moments and all images.
"""

import dataclasses

from cifar10_vit import get_config as get_recipe

from ctt.config import Config, preset


def get_config() -> Config:
    recipe, base = get_recipe(), preset("cvt_cifar")
    model = dataclasses.replace(base.model, stochastic_depth=0.1, dtype="bfloat16")
    return dataclasses.replace(recipe, model=model, splitting=base.splitting)
