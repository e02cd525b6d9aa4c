"""Write the weights of a run for another library, or the whole model as one file.

  ctt export RUN --format huggingface --out FOLDER     transformers' from_pretrained(FOLDER) loads it
  ctt export RUN --format timm --out FOLDER
  ctt export RUN --format stablehlo --out model.jax_export
The first two need a plain stack of layers (scheme lie, Euler, step 1, pre-norm); stablehlo takes every model, and
jax.export.deserialize runs it without ctt, raw pixels in, logits out.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from ctt.cli.apart import check_apart
from ctt.cli.command import CommonArguments, RunPath, parse, write_json

FormatName = Literal["timm", "huggingface", "stablehlo"]


@dataclass(frozen=True, kw_only=True)
class ExportArguments(CommonArguments):
    """Arguments of ``ctt export``."""

    run: RunPath
    """Run directory."""
    format: FormatName
    """What is written: `timm`, `huggingface`: a folder of model.safetensors and config.json; `stablehlo`: one file."""
    out: Path
    """Folder, new or empty; for stablehlo a file that does not exist."""


def run(words: list[str]) -> int:
    """Export, and print where to.

    Args:
        words: the words after ``ctt export``.

    Returns:
        The exit status.
    """
    default = ExportArguments(run=tyro.MISSING, format=tyro.MISSING, out=tyro.MISSING)
    arguments = parse(ExportArguments, words, default=default, command="export", description=__doc__)
    check_apart("--out", arguments.out, run=arguments.run)
    made = (arguments.out, arguments.out.parent / f"{arguments.out.name}.json")
    check_apart("--json", arguments.json, made=made, run=arguments.run)

    from ctt.interchange import export_notes, export_stablehlo, export_weights
    from ctt.training.run import load_run

    trained = load_run(arguments.run)
    names = trained.manifest["class_names"]
    notes: list[str] = []
    if arguments.format == "stablehlo":
        path = export_stablehlo(trained.config, trained.model, arguments.out, class_names=names)
    else:
        counters = (trained.manifest.get("origin") or {}).get("counters")
        path = export_weights(
            trained.config, trained.model, arguments.format, arguments.out, class_names=names, counters=counters
        )
        notes = export_notes(trained.config, arguments.format)
    for note in notes:
        print(note)
    print(f"{arguments.run} at step {trained.step} written to {path} ({arguments.format}).")
    write_json(
        arguments.json,
        {
            "run": str(arguments.run),
            "step": trained.step,
            "format": arguments.format,
            "out": str(path),
            "notes": notes,
        },
    )
    return 0
