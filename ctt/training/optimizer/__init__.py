"""The optimiser and its schedule, from optax.

* `schedule`: the learning rate as a function of the step.
* `depth`: what a parameter's module says of it: its place along the depth, and whether it is a matrix.
* `rule`: the update rules by name, clipping and weight decay.
"""

from ctt.training.optimizer.depth import Depth, Place, locate_parameters
from ctt.training.optimizer.rule import RULES, build_optimizer, decay_mask
from ctt.training.optimizer.schedule import SHAPES, build_schedule

__all__ = [
    "RULES",
    "SHAPES",
    "Depth",
    "Place",
    "build_optimizer",
    "build_schedule",
    "decay_mask",
    "locate_parameters",
]
