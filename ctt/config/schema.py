"""What is run: frozen, keyword-only, nested dataclasses.

The docstring under each field is the help text of the command line. ``None`` means that the
value is derived from other fields (each says from which) when the config is resolved.
"""

from dataclasses import dataclass, field

from ctt.config.name import (
    ActivationName,
    AffineName,
    AttentionBiasName,
    BasisName,
    ConstraintName,
    ConvolutionNormalizationName,
    DtypeName,
    GradientMethodName,
    ModelName,
    OptimizerName,
    PlacementName,
    PoolingName,
    PositionName,
    SchemeName,
    ScoreScaleName,
    SkewFlowName,
    SubstepName,
)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, how they are split and augmented."""

    name: str = "digits"
    """Data set: `digits` (bundled with scikit-learn) or any image classification set of TFDS."""
    dir: str | None = None
    """Folder that holds prepared TFDS data sets; None: TFDS's own default folder."""
    image_shape: tuple[int, int, int] | None = None
    """Height, width [pixels] and channels (1 or 3) seen by the model; other sizes are resized to it. \
None: known for digits, mnist, fashion_mnist, cifar10, cifar100, svhn_cropped."""
    num_classes: int | None = None
    """Number of classes, >= 2. None: known for the sets that `image_shape` names."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, in units of 255 (0 to 1). None: known for the sets that `image_shape` names, else 0.5."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel, in units of 255, > 0. None: as for `mean`, else 0.25."""
    val_size: int | None = None
    """Examples held out of the training split for validation, >= 1. None: 180 for digits, \
5,000 for the other sets that `image_shape` names."""
    split_seed: int = 0
    """Seed of the held-out split, in [0, 2^32); independent of `seed`, so that all runs share their test images."""
    crop_padding: int = 0
    """Random crop after padding each side by this many pixels, 0 (off) up to the image's side."""
    flip: bool = False
    """Mirror each training image left to right with probability 1/2."""


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


@dataclass(frozen=True, kw_only=True)
class SplittingConfig:
    """Time: the splitting scheme, the substep inside it, and the grid."""

    scheme: SchemeName = "lie"
    """Operator splitting scheme, over `model.operators` in their order; `word`: your own, given by `word`; \
`literal`: the scheme (3.5)-(3.10) of the paper as one layer."""
    word: str | None = None
    """Your own scheme, with `scheme` word: `attention/2 feedforward attention/2`, several words as \
`0.5 (attention feedforward) + 0.5 (feedforward attention)`, operators that flow together as `{a+b}`."""
    substep: SubstepName = "euler"
    """One-step method that approximates the flow of each letter of the scheme; `exact`: the operator's own flow."""
    operator_substeps: tuple[SubstepName, ...] = ()
    """A substep for each of `model.operators`, in their order. Empty: `substep` for all."""
    steps: int | None = None
    """Number of time steps (the depth of the network), >= 1. None: 4, or for a CvT the sum of `model.stages.steps`."""
    horizon: float | None = None
    """Final time, > 0; the step is horizon / steps. None: `steps`, the ordinary Transformer (step 1)."""
    allow_reduced_order: bool = False
    """Let a combination run whose order is lower than the scheme's, or that has no limit as the step goes to 0."""

    @property
    def substep_text(self) -> str:
        """The substep of all operators, or those of each, as a reader writes them."""
        return "/".join(self.operator_substeps) or self.substep


@dataclass(frozen=True, kw_only=True)
class ControlsConfig:
    """The weights as functions of time."""

    basis: BasisName = "piecewise_constant"
    """Basis of every control in time."""
    knots: int | None = None
    """Number of coefficients per control, >= 1, divides `splitting.steps`; 1 ties all steps (of a stage). None: one a \
step."""


@dataclass(frozen=True, kw_only=True)
class GradientConfig:
    """How the gradient through the time steps is computed."""

    method: GradientMethodName = "store"
    """`store` keeps all activations; `remat` keeps one state a step and recomputes the rest."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimiser, its schedule and its regularisation."""

    name: OptimizerName = "adamw"
    """Optimiser."""
    learning_rate: float = 1e-3
    """Peak learning rate, > 0."""
    weight_decay: float = 0.05
    """Decoupled weight decay of matrices, >= 0; biases, norms, embeddings are exempt."""
    b1: float = 0.9
    """Decay of the first moment, in [0, 1)."""
    b2: float = 0.999
    """Decay of the second moment, in [0, 1)."""
    warmup_fraction: float = 0.1
    """Share of the run spent in linear warm-up from 0 to the peak, in [0, 1)."""
    final_fraction: float = 0.01
    """Learning rate at the end of the cosine, as a fraction of the peak, in [0, 1]."""
    clip_norm: float | None = 1.0
    """Largest global norm of the gradient, > 0; None: no clipping."""
    label_smoothing: float = 0.0
    """Share of the target spread evenly over all classes, in [0, 1)."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The loop: length, batches, and what is written when."""

    epochs: float = 42.0
    """Length in passes over the training split, > 0."""
    steps: int | None = None
    """Length in optimiser steps, >= 1; given, it takes the place of `epochs`. None: derived from `epochs`."""
    batch_size: int = 64
    """Images a step, >= 1, at most the training split."""
    eval_batch_size: int = 500
    """Images a step of evaluation, >= 1; changes nothing but speed and memory."""
    log_every: int = 50
    """Optimiser steps between lines of `metrics.jsonl`, >= 1."""
    eval_every: int | None = None
    """Optimiser steps between evaluations on `val`, >= 1; None: about ten a run and one at the end."""
    checkpoint_every: int | None = None
    """Optimiser steps between checkpoints, >= 1; None: with each evaluation."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept, >= 1."""
    certify: bool = True
    """Measure the order of the discretisation before the first step (seconds) and keep it in `manifest.json`."""
    log_splitting_error: bool = False
    """Log the local splitting error of every time step with each evaluation on `val`."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One training run."""

    name: str | None = None
    """Name of the run and of its default folder under `runs/`. None: the config file's name."""
    seed: int = 0
    """Seed of the initial weights, batches, augmentation and dropout, in [0, 2^32)."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    normalization: NormalizationConfig = field(default_factory=NormalizationConfig)
    splitting: SplittingConfig = field(default_factory=SplittingConfig)
    controls: ControlsConfig = field(default_factory=ControlsConfig)
    gradient: GradientConfig = field(default_factory=GradientConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
