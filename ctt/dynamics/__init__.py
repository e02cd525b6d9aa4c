"""The right-hand side: operators as vector fields, constraint sets as projections.

* `operator`: the protocols that a splitting scheme relies on.
* `attention`, `feedforward`: the two operators of the Transformer.
* `convolution`: attention with translation-invariant kernels on a 2-D mesh.
* `mesh`, `kernel`: quadrature, and the same integrals with kernels given as smooth functions.
* `heat`, `skew`: two more operators, with exact flows.
* `normalization`: constraint sets, their projections, tangent projections and retractions.
* `placement`: where the normalisation stands in a substep.
* `literal`: the Lie scheme of the paper as one layer.
* `dropout`: one mask an operator and step.
* `precision`: the float32 islands.
"""

from ctt.dynamics.attention import SelfAttention, attend
from ctt.dynamics.convolution import ConvolutionalAttention, convolve_depthwise
from ctt.dynamics.dropout import Masked, depth_masks, dropout_masks, mask_operator
from ctt.dynamics.feedforward import FeedForward
from ctt.dynamics.heat import HeatDiffusion
from ctt.dynamics.kernel import KernelAttention, KernelLinear
from ctt.dynamics.literal import LiteralLayer
from ctt.dynamics.mesh import Mesh
from ctt.dynamics.normalization import (
    Normalization,
    project_to_s1,
    project_to_sphere,
    project_to_tangent,
    retract,
)
from ctt.dynamics.operator import Constrained, Flow, Maskable, Operator, Projection
from ctt.dynamics.placement import PLACEMENTS, PostNormalized, PreNormalized, TangentNormalized, place_operator
from ctt.dynamics.precision import lift_precision
from ctt.dynamics.skew import SkewMixing

__all__ = [
    "PLACEMENTS",
    "Constrained",
    "ConvolutionalAttention",
    "FeedForward",
    "Flow",
    "HeatDiffusion",
    "KernelAttention",
    "KernelLinear",
    "LiteralLayer",
    "Maskable",
    "Masked",
    "Mesh",
    "Normalization",
    "Operator",
    "PostNormalized",
    "PreNormalized",
    "Projection",
    "SelfAttention",
    "SkewMixing",
    "TangentNormalized",
    "attend",
    "convolve_depthwise",
    "depth_masks",
    "dropout_masks",
    "lift_precision",
    "mask_operator",
    "place_operator",
    "project_to_s1",
    "project_to_sphere",
    "project_to_tangent",
    "retract",
]
