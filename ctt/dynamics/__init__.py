"""The right-hand side: operators as vector fields, constraint sets as projections.

* `operator`: the protocols that a splitting scheme relies on.
* `attention`, `feedforward`: the two operators of the Transformer.
* `mesh`, `kernel`: quadrature, and the same integrals with kernels given as smooth functions.
* `heat`, `skew`: two more operators, with exact flows.
* `normalization`: constraint sets, their projections, tangent projections and retractions.
* `placement`: where the normalisation stands in a substep.
* `literal`: the Lie scheme of the paper as one layer.
* `dropout`: one mask an operator and step.
* `precision`: the float32 islands.
"""

from ctt.dynamics.attention import SelfAttention
from ctt.dynamics.dropout import Masked, dropout_masks, mask_operator
from ctt.dynamics.feedforward import FeedForward
from ctt.dynamics.normalization import Normalization, project_to_s1
from ctt.dynamics.operator import Constrained, Maskable, Operator, Projection
from ctt.dynamics.placement import PLACEMENTS, PostNormalized, PreNormalized
from ctt.dynamics.precision import lift_precision

__all__ = [
    "PLACEMENTS",
    "Constrained",
    "FeedForward",
    "Maskable",
    "Masked",
    "Normalization",
    "Operator",
    "PostNormalized",
    "PreNormalized",
    "Projection",
    "SelfAttention",
    "dropout_masks",
    "lift_precision",
    "mask_operator",
    "project_to_s1",
]
