"""One file that jax runs without `ctt`: raw pixels in, logits out."""

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.models.classifier import Classifier

PLATFORMS = ("cpu", "cuda", "tpu")
"""Where an exported function runs."""


def export_stablehlo(config: Config, model: Classifier, path: str | Path, *, class_names: Sequence[str] = ()) -> Path:
    """Write a serialised function from uint8 pixels `[batch, height, width, channels]` to logits `[batch, classes]`.

    The weights and the normalisation of pixels are inside, the batch may have any size. To use it::

        function = jax.export.deserialize(pathlib.Path("model.jax_export").read_bytes())
        logits = function.call(images)

    Beside it, ``<path>.json`` says what goes in and comes out. The package flatbuffers is needed on both sides.

    Args:
        config: the resolved config of the model.
        model: the model with its weights.
        path: the file; it must not exist.
        class_names: a name a class.

    Returns:
        The file.

    Raises:
        InputError: the file exists already or cannot be written, or the model cannot be lowered.
    """
    path = Path(path)
    beside = path.parent / f"{path.name}.json"
    for file in (path, beside):
        if os.path.lexists(file):
            raise InputError(f"`{file}` exists already. Choose another --out.")
    serialized, dtype = serialize(config, model)
    described = {
        "input": {"shape": ["batch", *(config.data.image_shape or ())], "dtype": "uint8", "range": [0, 255]},
        "output": {"shape": ["batch", config.data.num_classes], "dtype": dtype, "what": "logits"},
        "class_names": list(class_names),
        "platforms": list(PLATFORMS),
        "jax": jax.__version__,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        contents = {beside: json.dumps(described, indent=2).encode() + b"\n", path: serialized}
        partials = {file: file.with_name(file.name + ".partial") for file in contents}
        for file, content in contents.items():
            partials[file].write_bytes(content)
        for file, partial in partials.items():  # Both are whole by now.
            os.replace(partial, file)
    except OSError as error:
        raise InputError(f"`{path}` cannot be written ({error.strerror}). Choose another --out.") from error
    return path


def serialize(config: Config, model: Classifier) -> tuple[bytes, str]:
    """Return the function of `export_stablehlo` as bytes, and the type of its logits.

    Args:
        config: the resolved config of the model.
        model: the model with its weights.

    Raises:
        InputError: the package flatbuffers is absent, or an operator computes what has no stable form.
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise InputError(
            "To write a function of jax needs the package flatbuffers, and to read it too. Install it: "
            "pip install flatbuffers, and export again with --format stablehlo."
        )
    graphdef, state = nnx.split(model)

    def classify(images: jax.Array) -> jax.Array:
        return nnx.merge(graphdef, state)(images)

    (batch,) = jax.export.symbolic_shape("batch")
    images = jax.ShapeDtypeStruct((batch, *(config.data.image_shape or ())), jnp.uint8)
    try:
        exported = jax.export.export(jax.jit(classify), platforms=PLATFORMS)(images)
        return bytes(exported.serialize()), str(exported.out_avals[0].dtype)
    except (ValueError, TypeError, NotImplementedError) as error:  # Of an operator that the user brought, say.
        raise InputError(
            f"The model must be lowered for {', '.join(PLATFORMS)} at any batch size, but is not "
            f"({' '.join(str(error).split())[:200]}). Choose operators of jax's own functions alone."
        ) from error
