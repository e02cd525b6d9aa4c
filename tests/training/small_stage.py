"""The smallest CvT of one stage, for tests of its training."""

from ctt.config import StagesConfig

STAGES = StagesConfig(
    widths=(4,),
    num_heads=(1,),
    feedforward_widths=(5,),
    steps=(2,),
    kernels=(3,),
    strides=(2,),
    paddings=(1,),
    projection_kernels=(3,),
    key_value_strides=(1,),
    key_value_paddings=(1,),
)
SIZES = {"model.patch_size": 2, "model.width": 64, "model.num_heads": 4, "model.feedforward_width": 128}
"""What the fields of a single stage must be left at beside it."""
