"""CvT under the Hugging Face naming."""

from collections.abc import Mapping
from typing import Any

from ctt.config.error import InputError
from ctt.config.schema import Config, DataConfig, ModelConfig, NormalizationConfig, SplittingConfig, StagesConfig
from ctt.interchange.layout import CONVOLUTION, SAME, Axes, Depthwise, Entry, Path, linear, norm
from ctt.interchange.sidecar import is_usable, read, read_image_size
from ctt.interchange.tensors import WeightsFile
from ctt.interchange.vit import count_layers

_STAGE = "cvt.encoder.stages.{s}"
_LAYER = _STAGE + ".layers.{n}"
_PROJECTIONS = ("query", "key", "value")
_EPS = 1e-5
"""What the published layers add to the variance, whatever `layer_norm_eps` says."""


def find_naming(names: Mapping[str, Any]) -> str | None:
    """Return the naming of a CvT's tensors, or None if they are of something else.

    Args:
        names: the tensors by name.
    """
    first = _STAGE.format(s=0) + ".embedding.convolution_embeddings.projection.weight"
    return "huggingface" if first in names else None


def read_config(file: WeightsFile, *, image_size: tuple[int, int] | None = None) -> Config:
    """Return the config of the CvT in a file: scheme lie, Euler substeps of length 1.

    Args:
        file: the file; strides and heads are in its `config.json` alone.
        image_size: height and width [pixels]; None: of its `preprocessor_config.json`, else 224.

    Raises:
        InputError: there is no config, or it asks for what is not to be had.
    """
    given, tensors = file.config, file.tensors
    if given.get("model_type") != "cvt":
        raise InputError(
            f"A CvT needs its config.json, since tensors do not show strides and heads, got model_type "
            f"{given.get('model_type')!r}. Put the config.json beside the file."
        )
    head = tensors.get("classifier.weight")
    if head is None or head.ndim != 2:
        raise InputError("The file must have the tensor classifier.weight. Give the weights of a whole classifier.")
    widths = _per_stage(given, "embed_dim")
    count = len(widths)

    def take(name: str) -> tuple[int, ...]:
        return _per_stage(given, name, count)

    _check_plain(given, count)
    _check_sizes(given, tensors, count)
    ratios = _per_stage(given, "mlp_ratio", count, kind=(int, float))
    biases = _PROJECTIONS if _per_stage(given, "qkv_bias", count, kind=bool)[0] else ()
    height, width = image_size or read_image_size(file.preprocessor)
    return Config(
        data=DataConfig(
            name="imported",
            image_shape=(height, width, read(given, "num_channels", int, 3)),
            num_classes=head.shape[0],
            val_size=1,
        ),
        model=ModelConfig(
            name="cvt",
            attention_biases=(*biases, "output"),
            score_scale="width",
            pooling="cls" if _per_stage(given, "cls_token", count, kind=bool)[-1] else "mean",
            convolution_normalization="batch",
            stages=StagesConfig(
                widths=widths,
                num_heads=take("num_heads"),
                feedforward_widths=tuple(int(w * r) for w, r in zip(widths, ratios, strict=True)),
                steps=take("depth"),
                kernels=take("patch_sizes"),
                strides=take("patch_stride"),
                paddings=take("patch_padding"),
                projection_kernels=take("kernel_qkv"),
                key_value_strides=take("stride_kv"),
                key_value_paddings=take("padding_kv"),
            ),
        ),
        normalization=NormalizationConfig(eps=_EPS),
        splitting=SplittingConfig(steps=sum(take("depth"))),
    )


def _per_stage(
    given: Mapping[str, Any], name: str, count: int | None = None, *, kind: type | tuple[type, ...] = int
) -> tuple[Any, ...]:
    values: Any = given.get(name)
    is_list = isinstance(values, list) and len(values) == (count or len(values)) and len(values) >= 1
    if not is_list or not all(is_usable(value, kind) for value in values):
        raise InputError(
            f"`{name}` of config.json must have one value a stage, finite and < 2^31, got {values!r}. Mend the file."
        )
    return tuple(values)


def _check_sizes(given: Mapping[str, Any], tensors: Mapping[str, Any], count: int) -> None:
    """Check what tensors show before anything of a stated size is made."""
    stages = [_STAGE.format(s=s) for s in range(count)]
    kernels = [tensors.get(f"{stage}.embedding.convolution_embeddings.projection.weight") for stage in stages]
    found = {
        "embed_dim": [0 if kernel is None or not kernel.ndim else kernel.shape[0] for kernel in kernels],
        "depth": [count_layers(tensors, stage + ".layers.{n}.attention.output.dense.weight") for stage in stages],
    }
    for name, values in found.items():
        if list(_per_stage(given, name, count)) != values:
            raise InputError(
                f"`{name}` of config.json must be that of the tensors, which is {values}, got {given[name]}. Give the "
                "config.json that belongs to the file."
            )


def _check_plain(given: Mapping[str, Any], count: int) -> None:
    kernels = _per_stage(given, "kernel_qkv", count)
    wanted = {
        "stride_q": ([1] * count, "so that a query stays with its token"),
        "padding_q": ([kernel // 2 for kernel in kernels], "so that a query stays with its token"),
        "qkv_projection_method": (["dw_bn"] * count, "which is the published form"),
    }
    for name, (values, why) in wanted.items():
        if given.get(name) != values:
            raise InputError(
                f"`{name}` of config.json must be {values}, {why}, got {given.get(name)}. Such a CvT is not known here."
            )
    for name in ("cls_token", "qkv_bias"):
        flags = _per_stage(given, name, count, kind=bool)
        expected = (False,) * (count - 1) if name == "cls_token" else flags[-1:] * (count - 1)
        if flags[:-1] != expected:
            raise InputError(
                f"`{name}` of config.json must be {list(expected)} before the last stage, got {list(flags)}. Such a "
                "CvT is not known here."
            )


def build_layout(config: Config) -> list[Entry]:
    """Return the correspondence of a CvT's parameters.

    Args:
        config: the config of a plain pre-norm CvT with batch normalisation.
    """
    entries = [*norm("layernorm", ("normalization",)), *linear("classifier", (("read_out",),))]
    steps = config.model.stages.steps
    for s, depth in enumerate(steps):
        stage, ours = _STAGE.format(s=s), ("stages", s)
        embedding = f"{stage}.embedding.convolution_embeddings"
        entries.append(
            Entry(f"{embedding}.projection.weight", ((*ours, "embedding", "convolution", "kernel"),), CONVOLUTION)
        )
        entries.append(Entry(f"{embedding}.projection.bias", ((*ours, "embedding", "convolution", "bias"),)))
        entries += norm(f"{embedding}.normalization", (*ours, "embedding", "normalization"))
        if s == len(steps) - 1 and config.model.pooling == "cls":
            entries.append(Entry(f"{stage}.cls_token", ((*ours, "class_token"),), Axes(leading=2)))
        for n in range(depth):
            entries += _layer(config, s, n)
    return entries


def counters(config: Config) -> list[str]:
    """Return the names of the counters that PyTorch's batch normalisation keeps, which have no use here.

    Args:
        config: the config of a CvT.
    """
    return [
        f"{_convolution(s, n, name)}.normalization.num_batches_tracked"
        for s, depth in enumerate(config.model.stages.steps)
        for n in range(depth)
        for name in _PROJECTIONS
    ]


def _convolution(s: int, n: int, name: str) -> str:
    return f"{_LAYER.format(s=s, n=n)}.attention.attention.convolution_projection_{name}.convolution_projection"


def _layer(config: Config, s: int, n: int) -> list[Entry]:
    theirs = _LAYER.format(s=s, n=n)
    operators: Path = ("stages", s, "evolution", "controls", "operators")
    attention, feedforward = (*operators, "attention"), (*operators, "feedforward")
    entries = []
    for name in _PROJECTIONS:
        ours, convolution = (*attention, "operator", name), _convolution(s, n, name)
        names = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}
        entries.append(Entry(f"{convolution}.convolution.weight", ((*ours, "depthwise", "kernel"),), Depthwise(), n))
        entries += [
            Entry(f"{convolution}.normalization.{a}", ((*ours, "normalization", b),), SAME, n) for a, b in names.items()
        ]
        has_bias = name in config.model.attention_biases
        projection = f"{theirs}.attention.attention.projection_{name}"
        entries += linear(projection, ((*ours, "linear"),), depth=n, has_bias=has_bias)
    entries += linear(f"{theirs}.attention.output.dense", ((*attention, "operator", "output"),), depth=n)
    entries += linear(f"{theirs}.intermediate.dense", ((*feedforward, "operator", "expand"),), depth=n)
    entries += linear(f"{theirs}.output.dense", ((*feedforward, "operator", "contract"),), depth=n)
    entries += norm(f"{theirs}.layernorm_before", (*attention, "normalization"), depth=n)
    entries += norm(f"{theirs}.layernorm_after", (*feedforward, "normalization"), depth=n)
    return entries
