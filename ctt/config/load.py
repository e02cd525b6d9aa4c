"""Config files and overrides: ``configs/x.py`` with `get_config()`, then ``--field.sub value``."""

import dataclasses
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ctt.config.arguments import parse_arguments
from ctt.config.error import InputError, suggest
from ctt.config.preset import PRESETS, preset
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config
from ctt.config.serialize import check_types


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Load a config file, apply overrides, derive what is left open, and check the result.

    Args:
        path: a Python file that defines ``get_config()``.
        overrides: command-line words, such as ``["--splitting.scheme", "strang"]``.

    Returns:
        The resolved config.

    Raises:
        InputError: the file is missing or has no `get_config`, or a field cannot be used.

    Example:
        >>> config = load_config("configs/digits_vit.py", overrides=["--splitting.scheme", "strang"])
        >>> config.splitting.scheme, config.name
        ('strang', 'digits_vit')
    """
    config = read_config_file(path)
    if overrides:
        config = parse_arguments(Config, list(overrides), default=config, prog="load_config")
    return resolve_config(config)


def read_config_file(path: str | Path) -> Config:
    """Run a config file's ``get_config()`` and return its unresolved config.

    Args:
        path: a Python file; it may import its neighbours in the same folder. Or the name of a preset.

    Returns:
        The config, named after the file if it has no name, its types checked.

    Raises:
        InputError: no such file, no `get_config`, an error inside it, or a result of another type.
    """
    if str(path) in PRESETS and not Path(path).exists():
        return preset(str(path))
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"The config file must be a Python file, got `{path}`, a folder or device. Check the path.")
    if not path.is_file():
        near = sorted(str(p) for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
        near = [*PRESETS, *near] if path.parent == Path() and path.suffix != ".py" else near
        hint = f"{suggest(str(path), near)}. " if near else ""
        remedy = "Give the path of a Python file with a get_config() function, or the name of a preset."
        raise InputError(f"The config file `{path}` does not exist. {hint[:1].upper()}{hint[1:]}{remedy}")
    config = _run_get_config(path)
    if not isinstance(config, Config):
        raise InputError(f"`get_config()` of `{path}` must return a ctt.config.Config, got {type(config).__name__}.")
    return check_types(config if config.name else dataclasses.replace(config, name=path.stem))


def _run_get_config(path: Path) -> Any:
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    before = set(sys.modules)
    try:
        namespace = runpy.run_path(str(path))
        if not callable(namespace.get("get_config")):
            raise InputError(
                f"The config file `{path}` must define a function `get_config()` that returns a ctt.config.Config; "
                "add one, see configs/digits_vit.py."
            )
        return namespace["get_config"]()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"The config file `{path}` raised {type(error).__name__}: {error}. Mend the file.") from error
    finally:
        sys.path.remove(folder)
        # A neighbour imported by the file (configs/ is no package) must not shadow
        # a namesake of another folder in the same process.
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                del sys.modules[name]
