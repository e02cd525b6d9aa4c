"""Make a run of the weights of another library: a ViT of timm or Hugging Face, or a CvT of Hugging Face.

FILE is a safetensors or PyTorch file, a folder with one, or the id of a model on the Hub:
  ctt import model.safetensors --out runs/vit --data.name cifar10
  ctt import google/vit-base-patch16-224 --out runs/vit_base --image-size 160 160
The run can be measured, integrated otherwise (ctt eval RUN --splitting.scheme strang) and tuned (ctt train --init RUN).
"""

import dataclasses
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ctt.cli.apart import check_apart
from ctt.cli.command import CommonArguments, parse, print_values, write_json
from ctt.config.name import DtypeName

WeightsSource = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class ImportedData:
    """What the run is for."""

    name: str | None = None
    """Data set to measure and train on. None: none yet."""
    dir: str | None = None
    """Folder that holds prepared TFDS data sets. None: TFDS's own default folder."""


@dataclass(frozen=True, kw_only=True)
class ImportArguments(CommonArguments):
    """Arguments of ``ctt import``."""

    file: WeightsSource
    """File of weights, a folder with one, or the id of a model on the Hub."""
    out: Path
    """Run directory, new or empty."""
    image_size: tuple[int, int] | None = None
    """Height and width [pixels] of the images that the run sees; positions are interpolated. None: as the model was."""
    num_classes: int | None = None
    """Classes; another number than the file's gives a new read-out. None: those of the data set, or of the file."""
    num_heads: int | None = None
    """Attention heads of a ViT without a config.json. None: width / 64."""
    dtype: DtypeName = "float32"
    """Precision of the state."""
    data: ImportedData = field(default_factory=ImportedData)


def run(words: list[str]) -> int:
    """Import, and print what was found.

    Args:
        words: the words after ``ctt import``.

    Returns:
        The exit status.
    """
    default = ImportArguments(file=tyro.MISSING, out=tyro.MISSING)
    arguments = parse(ImportArguments, words, default=default, command="import", description=__doc__)
    source = Path(arguments.file)
    beside = tuple(source.parent / name for name in ("config.json", "preprocessor_config.json"))
    check_apart("--json", arguments.json, made=(arguments.out, source, *beside))

    from ctt.config.requirement import at_least
    from ctt.interchange import import_weights, transplant
    from ctt.models.build import count_parameters
    from ctt.training.adopt import create_run
    from ctt.training.directory import RunDirectory

    for name, value in (("num_classes", arguments.num_classes), ("num_heads", arguments.num_heads)):
        if value is not None:
            at_least(name.replace("_", "-"), value, 2 if name == "num_classes" else 1)
    for side in arguments.image_size or ():
        at_least("image-size", side, 1)
    RunDirectory(arguments.out).check_free()
    imported = import_weights(
        arguments.file, num_heads=arguments.num_heads, image_size=arguments.image_size, dtype=arguments.dtype
    )
    config = _retarget(imported.config, arguments)
    model, notes = transplant(imported.config, imported.model, config)
    has_classes = config.data.num_classes == len(imported.class_names)
    names = imported.class_names if has_classes else tuple(str(n) for n in range(config.data.num_classes or 0))
    out = create_run(config, model, arguments.out, class_names=names, origin=imported.origin)
    for note in (*imported.notes, *notes):
        print(note)
    values = {
        "run": str(out),
        "file": imported.file,
        "architecture": config.model.name,
        "naming": imported.naming,
        "num_parameters": count_parameters(model),
        "image_shape": list(config.data.image_shape or ()),
        "num_classes": config.data.num_classes,
        "steps": config.splitting.steps,
        "sha256": imported.sha256,
    }
    print_values(f"{imported.file} ({imported.naming})", {name: str(value) for name, value in values.items()})
    print(f"Use it by: ctt predict {shlex.quote(str(out))} IMAGE, or ctt train --init {shlex.quote(str(out))}")
    write_json(arguments.json, {**values, "notes": [*imported.notes, *notes]})
    return 0


def _retarget(config: Any, arguments: ImportArguments) -> Any:
    """Return the config with the images, classes and data set that were asked for."""
    from ctt.config.dataset import find_facts
    from ctt.config.error import InputError
    from ctt.config.resolve import resolve_config

    data, facts = config.data, find_facts(arguments.data.name or "")
    shape = (*(arguments.image_size or data.image_shape[:2]), data.image_shape[2])
    side = config.model.patch_size
    if config.model.name == "vit" and (shape[0] % side or shape[1] % side):
        raise InputError(
            f"`--image-size` must be multiples of the patch size {side}, got {shape[0]} and {shape[1]}. Pass such as "
            f"--image-size {max(side, shape[0] // side * side)} {max(side, shape[1] // side * side)}."
        )
    num_classes = arguments.num_classes or (facts.num_classes if facts else data.num_classes)
    data = dataclasses.replace(
        data,
        name=arguments.data.name or data.name,
        dir=arguments.data.dir,
        image_shape=shape,
        num_classes=num_classes,
        val_size=facts.val_size if facts else 5000,
    )
    return resolve_config(dataclasses.replace(config, name=arguments.out.name, data=data))
