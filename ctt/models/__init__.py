"""``lift . rollout . read-out``.

* `lift`: pixels to tokens.
* `operators`: from names to the operators of the right-hand side, also from outside.
* `evolution`: the depth of a network, the shell around the pure rollout.
* `solution`: the same on another grid: adaptive steps, dense output, the splitting error along the depth.
* `classifier`: what every model is, stages of depth between pixels and logits.
* `vit`: the Vision Transformer; `embedding`, `cvt`: the Convolutional vision Transformer.
* `build`: from a config to a model.
"""

from ctt.models.build import MODELS, build_model, count_parameters
from ctt.models.classifier import Classifier
from ctt.models.cvt import CvT
from ctt.models.evolution import Evolution
from ctt.models.lift import PatchLift
from ctt.models.operators import OPERATORS, build_operators
from ctt.models.solution import measure_splitting, solve_evolution
from ctt.models.vit import ViT

__all__ = [
    "MODELS",
    "OPERATORS",
    "Classifier",
    "CvT",
    "Evolution",
    "PatchLift",
    "ViT",
    "build_model",
    "build_operators",
    "count_parameters",
    "measure_splitting",
    "solve_evolution",
]
