"""ViT under three namings: timm, the Hub's older Hugging Face naming, and that of transformers 5 in memory."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ctt.config.error import InputError
from ctt.config.schema import Config, DataConfig, ModelConfig, NormalizationConfig, SplittingConfig
from ctt.interchange.layout import Axes, Entry, Patches, Path, linear, norm
from ctt.interchange.sidecar import read, unify
from ctt.interchange.tensors import WeightsFile

_OPERATORS: Path = ("evolution", "controls", "operators")
_PROJECTIONS = ("query", "key", "value")


@dataclass(frozen=True)
class Naming:
    """Names of the tensors of a ViT; ``{n}`` is the layer.

    Attributes:
        patches: convolution that cuts and lifts the patches.
        class_token: the class token.
        positions: the position embeddings.
        projections: query, key and value, or one fused tensor.
        output: output projection of the attention.
        attention_norm: layer normalisation before the attention.
        feedforward_norm: layer normalisation before the feed-forward network.
        expand: its first linear map.
        contract: its second.
        norm: closing layer normalisation.
        head: the read-out.
        eps: what is added to the variance where no config says it.
    """

    patches: str
    class_token: str
    positions: str
    projections: tuple[str, ...]
    output: str
    attention_norm: str
    feedforward_norm: str
    expand: str
    contract: str
    norm: str
    head: str
    eps: float


NAMINGS: dict[str, Naming] = {
    "timm": Naming(
        patches="patch_embed.proj",
        class_token="cls_token",
        positions="pos_embed",
        projections=("blocks.{n}.attn.qkv",),
        output="blocks.{n}.attn.proj",
        attention_norm="blocks.{n}.norm1",
        feedforward_norm="blocks.{n}.norm2",
        expand="blocks.{n}.mlp.fc1",
        contract="blocks.{n}.mlp.fc2",
        norm="norm",
        head="head",
        eps=1e-6,
    ),
    "huggingface": Naming(
        patches="vit.embeddings.patch_embeddings.projection",
        class_token="vit.embeddings.cls_token",
        positions="vit.embeddings.position_embeddings",
        projections=tuple(f"vit.encoder.layer.{{n}}.attention.attention.{name}" for name in _PROJECTIONS),
        output="vit.encoder.layer.{n}.attention.output.dense",
        attention_norm="vit.encoder.layer.{n}.layernorm_before",
        feedforward_norm="vit.encoder.layer.{n}.layernorm_after",
        expand="vit.encoder.layer.{n}.intermediate.dense",
        contract="vit.encoder.layer.{n}.output.dense",
        norm="vit.layernorm",
        head="classifier",
        eps=1e-12,
    ),
    "transformers": Naming(
        patches="vit.embeddings.patch_embeddings.projection",
        class_token="vit.embeddings.cls_token",
        positions="vit.embeddings.position_embeddings",
        projections=tuple(f"vit.layers.{{n}}.attention.{name}_proj" for name in "qkv"),
        output="vit.layers.{n}.attention.o_proj",
        attention_norm="vit.layers.{n}.layernorm_before",
        feedforward_norm="vit.layers.{n}.layernorm_after",
        expand="vit.layers.{n}.mlp.fc1",
        contract="vit.layers.{n}.mlp.fc2",
        norm="vit.layernorm",
        head="classifier",
        eps=1e-12,
    ),
}
"""Namings: files of the Hub and of `save_pretrained` have `huggingface`, the module in memory `transformers`."""

IGNORED = ("vit.pooler.dense.weight", "vit.pooler.dense.bias")
"""Tensors that a classifier does not use."""

_ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "gelu_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
"""Activations by the names of transformers and timm."""


def find_naming(names: Mapping[str, Any]) -> str | None:
    """Return the naming of a ViT's tensors, or None if they are of something else.

    Args:
        names: the tensors by name.
    """
    for name, naming in NAMINGS.items():
        if f"{naming.patches}.weight" in names and naming.output.format(n=0) + ".weight" in names:
            return name
    return None


def read_config(
    file: WeightsFile, naming_name: str, *, num_heads: int | None = None, image_size: tuple[int, int] | None = None
) -> Config:
    """Return the config of the ViT in a file: scheme lie, Euler substeps of length 1.

    Args:
        file: the file.
        naming_name: its naming.
        num_heads: number of heads, which the tensors do not show; None: of its config, else width / 64.
        image_size: height and width [pixels]; needed where the positions are of no square and no config says it.

    Raises:
        InputError: a tensor that decides is missing, or what the config asks for is not to be had.
    """
    naming, tensors, given = NAMINGS[naming_name], file.tensors, unify(file.config)
    kind = read(given, "model_type", str, "vit")
    if kind != "vit":
        raise InputError(f"`model_type` must be vit or cvt, got {kind!r}. Such a model is not known here.")
    is_timm = naming_name == "timm"
    if is_timm:
        _refuse_other_forms(given, tensors)
    kernel = _need(tensors, f"{naming.patches}.weight", 4)
    width, channels, patch = kernel.shape[0], kernel.shape[1], kernel.shape[2]
    if kernel.shape[3] != patch:
        raise InputError(f"Patches must be square, got {patch} x {kernel.shape[3]}. Such a ViT is not known here.")
    num_classes = _need(tensors, f"{naming.head}.weight", 2).shape[0]
    depth = count_layers(tensors, naming.output + ".weight")
    hidden = _need(tensors, naming.expand.format(n=0) + ".weight", 2).shape[0]
    has_class_token = naming.class_token in tensors or not is_timm
    positions = _need(tensors, naming.positions, 3).shape[1] - has_class_token
    has_biases = all(name.format(n=0) + ".bias" in tensors for name in naming.projections)
    found = {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "intermediate_size": hidden,
        "patch_size": patch,
        "num_channels": channels,
        "qkv_bias": has_biases,
    }
    _agree(given, found)
    height, image_width = _find_size(given, positions, patch, image_size)
    return Config(
        data=DataConfig(
            name="imported", image_shape=(height, image_width, channels), num_classes=num_classes, val_size=1
        ),
        model=ModelConfig(
            patch_size=patch,
            width=width,
            num_heads=find_heads(given, width, num_heads),
            feedforward_width=hidden,
            activation=_find_activation(given),
            attention_biases=(*(_PROJECTIONS if has_biases else ()), "output"),
            pooling="cls" if has_class_token else "mean",
        ),
        normalization=NormalizationConfig(eps=float(read(given, "layer_norm_eps", (int, float), naming.eps))),
        splitting=SplittingConfig(steps=depth),
    )


def build_layout(config: Config, naming_name: str) -> list[Entry]:
    """Return the correspondence of a ViT's parameters.

    Args:
        config: the config of a plain pre-norm ViT.
        naming_name: a key of `NAMINGS`.
    """
    naming, model = NAMINGS[naming_name], config.model
    entries = [
        Entry(f"{naming.patches}.weight", (("lift", "linear", "kernel"),), Patches(model.patch_size)),
        Entry(f"{naming.patches}.bias", (("lift", "linear", "bias"),)),
        Entry(naming.positions, (("lift", "positions"),), Axes(leading=1)),
        *norm(naming.norm, ("normalization",)),
        *linear(naming.head, (("read_out",),)),
    ]
    if model.pooling == "cls":
        entries.append(Entry(naming.class_token, (("lift", "class_token"),), Axes(leading=2)))
    has_bias = "query" in model.attention_biases
    for n in range(config.splitting.steps or 0):
        attention, feedforward = (*_OPERATORS, "attention"), (*_OPERATORS, "feedforward")
        parts = [(*attention, "operator", name) for name in _PROJECTIONS]
        groups = [tuple(parts)] if len(naming.projections) == 1 else [(part,) for part in parts]
        for name, group in zip(naming.projections, groups, strict=True):
            entries += linear(name.format(n=n), group, depth=n, has_bias=has_bias)
        entries += linear(naming.output.format(n=n), ((*attention, "operator", "output"),), depth=n)
        entries += linear(naming.expand.format(n=n), ((*feedforward, "operator", "expand"),), depth=n)
        entries += linear(naming.contract.format(n=n), ((*feedforward, "operator", "contract"),), depth=n)
        entries += norm(naming.attention_norm.format(n=n), (*attention, "normalization"), depth=n)
        entries += norm(naming.feedforward_norm.format(n=n), (*feedforward, "normalization"), depth=n)
    return entries


def count_layers(names: Mapping[str, Any], pattern: str) -> int:
    """Return the number of layers.

    Args:
        names: the tensors by name.
        pattern: the name of a tensor that every layer has; ``{n}`` is the layer.

    Raises:
        InputError: the layers are not numbered 0, 1, 2, ...
    """
    expression = re.compile(re.escape(pattern).replace(re.escape("{n}"), r"(0|[1-9]\d{0,5})"))
    layers = sorted(int(match[1]) for match in map(expression.fullmatch, names) if match)
    if layers != list(range(len(layers))):
        absent = next(n for n, layer in enumerate(layers) if n != layer)
        raise InputError(
            f"The layers must be numbered without a gap, but {pattern.format(n=absent)} is missing. Give all shards."
        )
    return len(layers)


def find_heads(given: Mapping[str, Any], width: int, num_heads: int | None) -> int:
    """Return the number of heads, which no tensor shows.

    Args:
        given: the model's `config.json`, as `unify` gives it.
        width: features of a token.
        num_heads: what the user says; None: nothing.

    Raises:
        InputError: it is not known, does not divide the width, or is another than the config's.
    """
    stated = read(given, "num_attention_heads", int, None)
    if num_heads is not None and stated is not None and num_heads != stated:
        raise InputError(
            f"The number of heads must be that of config.json, which is {stated}, got {num_heads}. Leave --num-heads "
            "out, or give the config.json that belongs to the file."
        )
    heads = num_heads if num_heads is not None else stated
    if heads is None and width % 64 == 0:
        heads = width // 64
    if heads is None or heads < 1 or width % heads:
        raise InputError(
            f"The number of heads must divide the width {width}, got {heads or 'none'}. Tensors do not show it: give "
            "the file's config.json beside it, or pass --num-heads."
        )
    return heads


def _agree(given: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for name, value in found.items():
        if read(given, name, type(value), value) != value:
            raise InputError(
                f"`{name}` of config.json must be that of the tensors, which is {value}, got {given[name]}. Give the "
                "config.json that belongs to the file."
            )


def _refuse_other_forms(given: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Refuse what timm's ViT has and ours has not: further tokens, and most of what follows a mean of the tokens."""
    for name in ("reg_token", "dist_token"):
        if name in tensors:
            raise InputError(f"A ViT must have no further tokens, got the tensor {name}. It is not known here.")
    pool = read(given, "global_pool", str, None)
    wanted = "token" if "cls_token" in tensors else "avg"
    if "fc_norm.weight" in tensors:
        raise InputError(
            "The closing normalisation must stand before the pooling, got timm's fc_norm, which follows it and is not "
            "known here. Give a ViT with the class token as its read-out, or one made with fc_norm=False."
        )
    if pool not in (None, wanted):
        raise InputError(
            f"`global_pool` must be {wanted} {'with' if wanted == 'token' else 'without'} a class token, got {pool!r}. "
            "Such a ViT is not known here."
        )


def _find_activation(given: Mapping[str, Any]) -> Any:
    name = read(given, "hidden_act", str, "gelu")
    if name not in _ACTIVATIONS:
        raise InputError(
            f"The activation must be one of {', '.join(_ACTIVATIONS)}, got {name!r}. It is not known here."
        )
    return _ACTIVATIONS[name]


def _find_size(
    given: Mapping[str, Any], positions: int, patch: int, image_size: tuple[int, int] | None
) -> tuple[int, int]:
    stated = read(given, "image_size", (int, list), None)
    stated = [stated] * 2 if isinstance(stated, int) else stated
    for size in (stated, image_size, [math.isqrt(max(positions, 0)) * patch] * 2):
        if not size:
            continue
        if len(size) != 2 or not all(isinstance(side, int) and side >= 1 for side in size):
            raise InputError(f"`image_size` of config.json must be a height and a width, got {size}. Mend the file.")
        height, width = size
        if (height // patch) * (width // patch) == positions:
            return height, width
    raise InputError(
        f"The image size must give {positions} patches of side {patch}, got {stated or 'none'}. Give the file's "
        "config.json beside it, or pass --image-size HEIGHT WIDTH of the original model."
    )


def _need(tensors: Mapping[str, Any], name: str, ndim: int) -> Any:
    tensor = tensors.get(name)
    if tensor is None or tensor.ndim != ndim or not tensor.size:
        received = "which is missing" if tensor is None else f"which has the shape {list(tensor.shape)}"
        raise InputError(
            f"The file must have the tensor {name} with {ndim} axes, {received}. Give the weights of a whole "
            "classifier."
        )
    return tensor
