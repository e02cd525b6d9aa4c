"""The names that the command line offers, declared without importing jax.

The folders that implement a name look it up in a table keyed by these strings; a test holds
that each table has exactly the names declared here.
"""

from typing import Literal, get_args

SchemeName = Literal[
    "lie",
    "lie_reversed",
    "strang",
    "strang_reversed",
    "strang_staggered",
    "parallel",
    "swss",
    "yoshida4",
    "word",
    "literal",
]
SubstepName = Literal["euler", "midpoint", "heun", "rk4", "exact"]
SamplingName = Literal["stage", "midpoint", "step"]
PlacementName = Literal["pre", "post", "tangent"]
ConstraintName = Literal["s1", "sphere"]
AffineName = Literal["elementwise", "scalar", "none"]
SkewFlowName = Literal["exponential", "cayley"]
ActivationName = Literal["relu", "gelu", "gelu_tanh"]
AttentionBiasName = Literal["query", "key", "value", "output"]
BasisName = Literal["piecewise_constant"]
GradientMethodName = Literal["store", "remat"]
ModelName = Literal["vit", "cvt"]
ConvolutionNormalizationName = Literal["layer", "none", "batch"]
ScoreScaleName = Literal["head", "width"]
PositionName = Literal["learned", "sincos"]
PoolingName = Literal["cls", "mean"]
OptimizerName = Literal["adamw", "lion", "sgd", "muon", "schedule_free"]
ScheduleName = Literal["cosine", "wsd", "constant"]
DtypeName = Literal["float32", "bfloat16", "float64"]
DistributedName = Literal["auto", "on", "off"]
WeightsName = Literal["last", "ema"]
SplitName = Literal["train", "val", "test"]
InputName = Literal["auto", "resident", "stream"]

SCHEMES: tuple[str, ...] = tuple(name for name in get_args(SchemeName) if name not in ("word", "literal"))
"""Schemes that are a table's line; `word` is the user's own, and `literal` is a layer and no word."""
SUBSTEPS: tuple[str, ...] = get_args(SubstepName)
SAMPLINGS: tuple[str, ...] = get_args(SamplingName)
PLACEMENTS: tuple[str, ...] = get_args(PlacementName)
ACTIVATIONS: tuple[str, ...] = get_args(ActivationName)
BASES: tuple[str, ...] = get_args(BasisName)
GRADIENT_METHODS: tuple[str, ...] = get_args(GradientMethodName)
MODELS: tuple[str, ...] = get_args(ModelName)
CONVOLUTION_NORMALIZATIONS: tuple[str, ...] = get_args(ConvolutionNormalizationName)
POSITIONS: tuple[str, ...] = get_args(PositionName)
OPTIMIZERS: tuple[str, ...] = get_args(OptimizerName)
SCHEDULES: tuple[str, ...] = get_args(ScheduleName)
SPLITS: tuple[str, ...] = get_args(SplitName)
