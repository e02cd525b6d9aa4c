"""From a file of weights to a config and the weights of its model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from ctt.config.error import InputError
from ctt.config.name import DtypeName
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config, DataConfig
from ctt.interchange import cvt, vit
from ctt.interchange.layout import to_state
from ctt.interchange.sidecar import IMAGENET, read_class_names, read_statistics
from ctt.interchange.tensors import WeightsFile, read_weights
from ctt.models.build import build_model
from ctt.models.classifier import Classifier


@dataclass(frozen=True)
class Imported:
    """A model of another library.

    Attributes:
        config: its resolved config: scheme lie, Euler substeps of length 1.
        model: the model with its weights.
        class_names: a name a class.
        naming: what its tensors were called: timm, huggingface or transformers.
        file: base name of the file, or the id on the Hub.
        sha256: of the file's bytes.
        counters: integer tensors without use here, which an export gives back.
        notes: sentences for the user.
    """

    config: Config
    model: Classifier
    class_names: tuple[str, ...]
    naming: str
    file: str
    sha256: str
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def origin(self) -> dict[str, Any]:
        """What a run remembers of where it came from, as JSON values."""
        return {
            "file": self.file,
            "sha256": self.sha256,
            "architecture": self.config.model.name,
            "naming": self.naming,
            "counters": dict(self.counters),
        }


def import_weights(
    source: str | Path,
    *,
    num_heads: int | None = None,
    image_size: tuple[int, int] | None = None,
    dtype: DtypeName = "float32",
) -> Imported:
    """Read the weights of a ViT (timm, Hugging Face) or a CvT (Hugging Face) as controls at step 1.

    Args:
        source: a safetensors or PyTorch file, a folder of the Hugging Face form, or the id of a model on the Hub.
        num_heads: heads of a ViT that has no config; None: width / 64.
        image_size: height and width [pixels] of the original images where no config says it; a CvT takes any.
        dtype: precision of the state; float64 needs jax's 64 bits.

    Raises:
        InputError: the file cannot be read, is of an unknown architecture, lacks or adds a tensor, or has numbers
            that are not finite.
    """
    file = read_weights(source)
    vit_naming, cvt_naming = vit.find_naming(file.tensors), cvt.find_naming(file.tensors)
    if vit_naming is None and cvt_naming is None:
        some = ", ".join(sorted(file.tensors)[:3])
        raise InputError(
            f"`{source}` must be a ViT (timm or Hugging Face) or a CvT (Hugging Face), got tensors such as {some}. "
            "Other architectures are not known here."
        )
    if cvt_naming is not None:
        naming, config = cvt_naming, cvt.read_config(file, image_size=image_size)
    else:
        assert vit_naming is not None
        naming, config = vit_naming, vit.read_config(file, vit_naming, num_heads=num_heads, image_size=image_size)
    config = replace(config, model=replace(config.model, dtype=dtype), data=_with_statistics(config, file))
    config = resolve_config(config)
    layout, ignored = _layout(config, naming)
    abstract = nnx.eval_shape(lambda: build_model(config))
    graphdef, weights, rest = nnx.split(abstract, (nnx.Param, nnx.BatchStat), ...)
    flat = list(nnx.to_flat_state(weights))
    _check_finite(file, np.float64 if dtype == "float64" else np.float32)
    values = to_state(layout, file.tensors, {path: leaf.shape for path, leaf in flat}, ignored=ignored)
    filled = nnx.from_flat_state([(path, leaf.replace(jnp.asarray(values[path], leaf.dtype))) for path, leaf in flat])
    counters = {name: int(file.tensors[name]) for name in ignored if _is_counter(file.tensors.get(name))}
    dropped = [name for name in ignored if name in file.tensors and name not in counters]
    notes = [f"{name} is of no use to a classifier and was left out." for name in dropped]
    if any(tensor.dtype == np.float64 for tensor in file.tensors.values()) and dtype != "float64":
        notes.append("The weights are of 64 bits in the file, and were rounded to 32.")
    return Imported(
        config=config,
        model=nnx.merge(graphdef, filled, rest),
        class_names=read_class_names(file.config, config.data.num_classes or 0),
        naming=naming,
        file=file.name,
        sha256=file.sha256,
        counters=counters,
        notes=tuple(notes),
    )


def _layout(config: Config, naming: str) -> tuple[list[Any], list[str]]:
    if config.model.name == "cvt":
        return cvt.build_layout(config), cvt.counters(config)
    return vit.build_layout(config, naming), list(vit.IGNORED)


def _check_finite(file: WeightsFile, dtype: type[np.floating]) -> None:
    for name, tensor in file.tensors.items():
        if not np.issubdtype(tensor.dtype, np.floating) or not tensor.size:
            continue
        if not np.isfinite(tensor).all():
            raise InputError(f"The weights must be finite numbers, but {name} has others. Give an undamaged file.")
        if np.max(np.abs(tensor)) > np.finfo(dtype).max:
            raise InputError(
                f"The weights must be numbers of 32 bits, but {name} has larger ones. Give a file of 32 bits, or pass "
                "--dtype float64."
            )


def _is_counter(tensor: np.ndarray | None) -> bool:
    return tensor is not None and tensor.ndim == 0 and np.issubdtype(tensor.dtype, np.integer)


def _with_statistics(config: Config, file: WeightsFile) -> DataConfig:
    channels = (config.data.image_shape or (0, 0, 3))[2]
    mean, std = IMAGENET if config.model.name == "cvt" else ((0.5,) * 3, (0.5,) * 3)
    mean, std = read_statistics(file.config, file.preprocessor, (mean[:channels], std[:channels]))
    return replace(config.data, mean=mean, std=std)
