"""Continuous-time Transformers: training Transformers as controlled dynamical systems.

Folders, from left to right; each imports only what stands to its left:
``config, typing | dynamics | controls | splitting | adjoints | models | certificates, interchange | training |
reports | cli``, and ``data``, which knows only ``config``. The names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from ctt.certificates.order import certify_order
    from ctt.config.load import load_config
    from ctt.config.preset import preset
    from ctt.config.schema import Config
    from ctt.interchange.importer import import_weights
    from ctt.models.build import build_model
    from ctt.splitting.integrate import integrate
    from ctt.splitting.order import observed_order
    from ctt.splitting.solver import build_solver
    from ctt.training.run import load_run

_PLACES = {
    "Config": "ctt.config.schema",
    "load_config": "ctt.config.load",
    "build_model": "ctt.models.build",
    "build_solver": "ctt.splitting.solver",
    "certify_order": "ctt.certificates.order",
    "import_weights": "ctt.interchange.importer",
    "integrate": "ctt.splitting.integrate",
    "observed_order": "ctt.splitting.order",
    "preset": "ctt.config.preset",
    "load_run": "ctt.training.run",
}

__all__ = [
    "Config",
    "build_model",
    "build_solver",
    "certify_order",
    "import_weights",
    "integrate",
    "load_config",
    "load_run",
    "observed_order",
    "preset",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'ctt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
