"""Classify image files of any size with a trained run.

Each image is scaled and cropped to the size that the model was trained on:
  ctt predict runs/cifar10_vit_tiny cat.jpg dog.png --top 5
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ctt.cli.command import CommonArguments, RunPath, parse, write_json


@dataclass(frozen=True, kw_only=True)
class PredictArguments(CommonArguments):
    """Arguments of ``ctt predict``."""

    run: RunPath
    """Run directory."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")] = ()
    """Image files."""
    top: int = 3
    """How many of the likeliest classes are shown, >= 1."""


def run(words: list[str]) -> int:
    """Classify, and print class names with probabilities.

    Args:
        words: the words after ``ctt predict``.

    Returns:
        The exit status.
    """
    default = PredictArguments(run=tyro.MISSING)
    arguments = parse(PredictArguments, words, default=default, command="predict", description=__doc__)

    import jax
    import jax.numpy as jnp
    import numpy as np

    from ctt.config.error import InputError
    from ctt.config.requirement import require
    from ctt.data.image import read_image
    from ctt.training.run import load_run

    if not arguments.images:
        raise InputError("`ctt predict` needs at least one image file: ctt predict RUN IMAGE...")
    require(arguments.top >= 1, "top", "be >= 1", arguments.top, remedy="Pass --top 3.")
    trained = load_run(arguments.run)
    shape, names = trained.config.data.image_shape, trained.manifest["class_names"]
    assert shape is not None  # A saved config is resolved.
    images = np.stack([read_image(path, shape) for path in arguments.images])
    probabilities = np.asarray(jax.nn.softmax(trained.model(jnp.asarray(images)), axis=-1))
    results = []
    for path, row in zip(arguments.images, probabilities, strict=True):
        best = [int(c) for c in np.argsort(-row)[: arguments.top]]
        print(f"{path}: " + ", ".join(f"{names[c]} {row[c]:.1%}" for c in best))
        classes = [{"class": names[c], "probability": float(row[c])} for c in best]
        results.append({"image": str(path), "classes": classes})
    write_json(arguments.json, {"run": str(arguments.run), "step": trained.step, "predictions": results})
    return 0
