"""From a run to the files of other libraries, where the model is a plain stack of layers that they know."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flax import nnx

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.interchange import cvt, vit
from ctt.interchange.describe import TIMM_EPS, describe_huggingface, describe_preprocessor, describe_timm
from ctt.interchange.layout import to_tensors
from ctt.models.classifier import Classifier

Format = Literal["timm", "huggingface"]


def export_weights(
    config: Config,
    model: Classifier,
    file_format: Format,
    folder: str | Path,
    *,
    class_names: Sequence[str] = (),
    counters: Mapping[str, int] | None = None,
) -> Path:
    """Write `model.safetensors`, `config.json` and for Hugging Face `preprocessor_config.json` into a new folder.

    Args:
        config: the resolved config of the model.
        model: the model with its weights.
        file_format: ``timm`` or ``huggingface`` (that of the Hub, which every version of transformers loads).
        folder: the folder, new or empty.
        class_names: a name a class.
        counters: integer tensors that an import kept; others are 0.

    Returns:
        The folder.

    Raises:
        InputError: the model is no plain stack, the format does not know its architecture, or the folder is taken.
    """
    check_plain_stack(config)
    _check_format(config, file_format)
    folder = Path(folder)
    claim_folder(folder)
    values = {
        path: np.asarray(leaf[...]) for path, leaf in nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    }
    is_cvt = config.model.name == "cvt"
    tensors = to_tensors(cvt.build_layout(config) if is_cvt else vit.build_layout(config, file_format), values)
    if is_cvt:
        kept = counters or {}
        tensors |= {name: np.asarray(kept.get(name, 0), np.int64) for name in cvt.counters(config)}
    described = (
        describe_timm(config, class_names) if file_format == "timm" else describe_huggingface(config, class_names)
    )
    texts = {"config.json": described}
    if file_format == "huggingface":
        texts["preprocessor_config.json"] = describe_preprocessor(config)
    try:
        _write(folder, tensors, texts)
    except OSError as error:
        raise InputError(f"`{folder}` cannot be written ({error.strerror}). Choose another --out.") from error
    return folder


def check_plain_stack(config: Config) -> None:
    """Check that a model is the stack of pre-norm layers that other libraries know.

    Args:
        config: a resolved config.

    Raises:
        InputError: it is not; the field that differs is named.
    """
    model, splitting, norm = config.model, config.splitting, config.normalization
    wanted: dict[str, tuple[Any, Any, str]] = {
        "splitting.scheme": (splitting.scheme, "lie", "a step of another splitting is no such layer"),
        "splitting.substep": (splitting.substep_text.split("/")[0], "euler", "another substep is no residual branch"),
        "splitting.horizon": (splitting.horizon, float(splitting.steps or 0), "a residual branch has the step 1"),
        "controls.basis": (config.controls.basis, "piecewise_constant", "a layer there has weights of its own"),
        "controls.knots": (config.controls.knots, splitting.steps, "layers there do not share their weights"),
        "normalization.placement": (norm.placement, "pre", "layers there are pre-norm"),
        "normalization.affine": (norm.affine, "elementwise", "layers there have a scale and a shift a feature"),
        "normalization.constraint": (norm.constraint, "s1", "layers there have layer normalisation"),
        "normalization.shared": (norm.shared, False, "each operator there has a normalisation of its own"),
        "model.operators": (model.operators, ("attention", "feedforward"), "layers there have these two alone"),
        "model.causal": (model.causal, False, "attention there sees all tokens"),
        "model.feedforward_bias": (model.feedforward_bias, True, "linear maps there have a bias"),
    }
    if model.name == "cvt":
        wanted["model.convolution_normalization"] = (
            model.convolution_normalization,
            "batch",
            "that is the published form",
        )
        wanted["model.score_scale"] = (model.score_scale, "width", "that is the published scale")
        wanted["normalization.eps"] = (norm.eps, 1e-5, "their layers have that built in")
        wanted["splitting.steps"] = (splitting.steps, sum(model.stages.steps), "its stages have these steps there")
    else:
        wanted["model.score_scale"] = (model.score_scale, "head", "scores there are scaled so")
        wanted["model.position"] = (model.position, "learned", "positions there are learned")
    for field, (received, value, why) in wanted.items():
        if received != value:
            raise InputError(
                f"The run is no plain stack of layers: `{field}` is {received!r}, and must be {value!r} ({why}). "
                "Export it as stablehlo, which takes every model."
            )
    if len(set(splitting.operator_substeps) | {"euler"}) > 1:
        raise InputError(
            f"The run is no plain stack of layers: `splitting.operator_substeps` is {splitting.operator_substeps}, and "
            "must be Euler for all. Export it as stablehlo, which takes every model."
        )
    biases = set(model.attention_biases)
    if "output" not in biases or len(biases) not in (1, 4):
        raise InputError(
            f"The run is no plain stack of layers: `model.attention_biases` is {model.attention_biases}, and must be "
            "all four or output alone. Export it as stablehlo, which takes every model."
        )


def _check_format(config: Config, file_format: Format) -> None:
    model = config.model
    if file_format == "timm":
        if model.name != "vit":
            raise InputError("`--format timm` knows the model vit alone, got cvt. Pass --format huggingface.")
        if config.normalization.eps > TIMM_EPS:
            raise InputError(
                f"`normalization.eps` must be at most {TIMM_EPS} for --format timm, whose layers have that built in, "
                f"got {config.normalization.eps}. Pass --format huggingface or stablehlo."
            )
        return
    if model.pooling != "cls":
        raise InputError(
            f"`model.pooling` must be cls for --format huggingface, whose {model.name} reads its class token, got "
            f"{model.pooling!r}. Pass --format stablehlo{', or timm' if model.name == 'vit' else ''}."
        )
    if model.name != "cvt":
        return
    if model.activation != "gelu":
        raise InputError(
            f"`model.activation` must be gelu for --format huggingface, whose CvT knows no other, got "
            f"{model.activation!r}. Pass --format stablehlo."
        )
    if any(steps <= stage for stage, steps in enumerate(model.stages.steps)):
        raise InputError(
            "`model.stages.steps` must be at least 1, 2, 3, ... for --format huggingface, since transformers builds no "
            f"other CvT, got {model.stages.steps}. Pass --format stablehlo."
        )


def export_notes(config: Config, file_format: Format) -> list[str]:
    """Return sentences on what another library computes otherwise.

    Args:
        config: the config of an exported model.
        file_format: ``timm`` or ``huggingface``.
    """
    eps = config.normalization.eps
    if file_format == "timm" and eps != TIMM_EPS:
        return [f"timm adds {TIMM_EPS} to the variance of a token, the run {eps}: logits differ by about as little."]
    return []


def _write(folder: Path, tensors: Mapping[str, np.ndarray], texts: Mapping[str, Any]) -> None:
    from safetensors.numpy import save_file

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        partial = Path(temporary) / "export"
        partial.mkdir()
        save_file(dict(tensors), partial / "model.safetensors", metadata={"format": "pt"})
        for name, values in texts.items():
            (partial / name).write_text(json.dumps(values, indent=2) + "\n")
        if folder.exists():
            folder.rmdir()  # Empty, as `claim_folder` saw.
        os.replace(partial, folder)


def claim_folder(folder: Path) -> None:
    """Check that a folder is new or empty, and make those above it.

    Args:
        folder: the folder.

    Raises:
        InputError: it holds something, or cannot be made.
    """
    try:
        if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"`{folder}` is not an empty folder. Choose another --out.")
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`{folder}` cannot be made ({error.strerror}). Choose another --out.") from error
