"""``lift . rollout . read-out``.

* `lift`: pixels to tokens.
* `evolution`: the depth of a network, the shell around the pure rollout.
* `vit`: the Vision Transformer.
* `build`: from a config to a model.
"""

from ctt.models.build import MODELS, build_model, count_parameters
from ctt.models.evolution import Evolution
from ctt.models.lift import PatchLift
from ctt.models.vit import ViT

__all__ = ["MODELS", "Evolution", "PatchLift", "ViT", "build_model", "count_parameters"]
