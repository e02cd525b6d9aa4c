"""Weights from and to other libraries, and whole models as files.

* `tensors`: files of weights, read without running anything that is in them; `sidecar`: what lies beside them.
* `layout`: the correspondence of parameters as data, exact in both directions.
* `vit`, `cvt`: the layouts and configs of the architectures (timm, Hugging Face).
* `importer`: from a file to a config and a model; `export`, `describe`: the inverse.
* `positions`, `transplant`: the weights of one model in another of its kind.
* `stablehlo`: a function that jax runs without `ctt`.
"""

from ctt.interchange.export import check_plain_stack, export_notes, export_weights
from ctt.interchange.importer import Imported, import_weights
from ctt.interchange.stablehlo import export_stablehlo
from ctt.interchange.transplant import transplant

__all__ = [
    "Imported",
    "check_plain_stack",
    "export_notes",
    "export_stablehlo",
    "export_weights",
    "import_weights",
    "transplant",
]
