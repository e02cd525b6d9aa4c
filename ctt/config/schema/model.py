"""The lift, the right-hand side and the read-out, and normalisation as a constraint."""

from dataclasses import dataclass, field

from ctt.config.name import (
    ActivationName,
    AffineName,
    AttentionBiasName,
    ConstraintName,
    ConvolutionNormalizationName,
    DtypeName,
    ModelName,
    PlacementName,
    PoolingName,
    PositionName,
    ScoreScaleName,
    SkewFlowName,
)


@dataclass(frozen=True, kw_only=True)
class StagesConfig:
    """The stages of a CvT, one value a stage; used by the model cvt alone, in place of the fields for one stage."""

    widths: tuple[int, ...] = (64, 128, 256)
    """Features of a token, >= 1; each a multiple of its `num_heads`."""
    num_heads: tuple[int, ...] = (1, 2, 4)
    """Attention heads, >= 1."""
    feedforward_widths: tuple[int, ...] = (128, 256, 512)
    """Hidden features of the feed-forward operator, >= 1."""
    steps: tuple[int, ...] = (1, 2, 4)
    """Time steps, >= 1; with another `splitting.steps` the stages share that number in this proportion."""
    kernels: tuple[int, ...] = (3, 3, 3)
    """Side of the kernel of the token embedding, a convolution [pixels, or tokens of the stage before], >= 1."""
    strides: tuple[int, ...] = (2, 2, 2)
    """Stride of the token embedding, >= 1; divides the mesh that it sees."""
    paddings: tuple[int, ...] = (1, 1, 1)
    """Zeros around the mesh that the token embedding sees, >= 0."""
    projection_kernels: tuple[int, ...] = (3, 3, 3)
    """Side of the depthwise kernels of query, key and value [tokens], >= 1 and odd."""
    key_value_strides: tuple[int, ...] = (2, 2, 2)
    """Stride of the depthwise convolutions of key and value, >= 1; 2 leaves a quarter of the keys."""
    key_value_paddings: tuple[int, ...] = (1, 1, 1)
    """Zeros around the mesh that the depthwise convolutions of key and value see, >= 0 (half the kernel keeps it)."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The lift, the operators of the right-hand side, and the read-out."""

    name: ModelName = "vit"
    """Architecture: `vit`, patches and one stage; `cvt`, convolutional embeddings and projections in several stages."""
    operators: tuple[str, ...] = ("attention", "feedforward")
    """The summands of the right-hand side, in the order in which a scheme counts them: attention, feedforward, \
heat, skew, or your own as `package.module:Class` or `folder/file.py:Class`."""
    patch_size: int = 2
    """Side of a square patch [pixels], >= 1; divides the image's height and width."""
    width: int = 64
    """Features of a token, >= 1; a multiple of `num_heads` (and of 4 with `sincos` positions)."""
    num_heads: int = 4
    """Attention heads, >= 1."""
    feedforward_width: int = 128
    """Hidden features of the feed-forward operator, >= 1."""
    activation: ActivationName = "gelu"
    """Activation of the feed-forward operator; `gelu` is exact, `gelu_tanh` its cheaper approximation."""
    attention_biases: tuple[AttentionBiasName, ...] = ("query", "key", "value", "output")
    """Which projections of the attention have a bias."""
    score_scale: ScoreScaleName = "head"
    """Scale of the attention's scores: one over the root of the features of a head, or of a token (published CvT)."""
    causal: bool = False
    """Whether a token attends only to itself and the tokens before it, as in a language model."""
    feedforward_bias: bool = True
    """Whether the linear maps of the feed-forward operator have a bias."""
    feedforward_layers: int = 2
    """Linear maps of the feed-forward network, >= 1; other than 2 with the scheme `literal` alone."""
    heat_diffusivity: float = 0.1
    """Initial diffusivity of the operator `heat` [token spacings squared a unit of time], > 0; learnable."""
    skew_flow: SkewFlowName = "exponential"
    """Flow of the operator `skew`: the matrix exponential, exact, or the Cayley transform, of order 2."""
    position: PositionName = "learned"
    """Position embedding: learned, or fixed 2-D sines and cosines."""
    pooling: PoolingName = "mean"
    """What the read-out sees: a class token, or the mean of the tokens."""
    dropout: float = 0.0
    """Probability of dropping an entry of an operator's output, in [0, 1); one mask an operator and step."""
    stochastic_depth: float = 0.0
    """Probability of leaving out an operator for an image in the last time step, in [0, 1), growing linearly in time \
from 0; one draw an image, operator and step. The flow of the substep `exact` is never left out."""
    convolution_normalization: ConvolutionNormalizationName = "layer"
    """Of a CvT, between the depthwise and the pointwise part of a projection: `layer`, each token by itself; `none`; \
`batch`, the published form, for which an image's field depends on its batch in training."""
    stages: StagesConfig = field(default_factory=StagesConfig)
    dtype: DtypeName = "float32"
    """Precision of the state; softmax, normalisation and loss never fall below float32, weights neither."""


@dataclass(frozen=True, kw_only=True)
class NormalizationConfig:
    """Normalisation as a projection onto a constraint set, and where it stands."""

    placement: PlacementName = "pre"
    """`pre`: inside the vector field (ViT); `post`: after each substep (Vaswani et al. 2017); `tangent`: after \
each substep of a field that is tangent to the set, which keeps the scheme's order."""
    constraint: ConstraintName = "s1"
    """`s1`: mean and variance of a token's features are fixed (layer normalisation); `sphere`: their mean square \
is (RMS normalisation)."""
    affine: AffineName = "elementwise"
    """`none`: the projection alone; `scalar`: onto the moving set of mean s1(t) and deviation s2(t) > 0, two \
learnable numbers; `elementwise`: a scale and shift a feature follow it, which is no projection."""
    shared: bool | None = None
    """Whether all operators share one set. None: with the placement tangent, which needs it."""
    eps: float = 1e-6
    """Added to the variance, >= 0; 0 is the exact projection, undefined at constant tokens."""
