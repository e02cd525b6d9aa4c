"""A config as JSON and back, for `config.json` of a run directory."""

import dataclasses
import json
import math
import sys
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ctt.config.error import InputError, suggest
from ctt.config.schema import Config


def config_to_dict(config: Any) -> dict[str, Any]:
    """Return a config as nested dictionaries of JSON values.

    Args:
        config: a `Config` or one of its parts.
    """
    return json.loads(json.dumps(dataclasses.asdict(config)))


def config_from_dict(values: dict[str, Any]) -> Config:
    """Return the config that `config_to_dict` wrote.

    Fields that are absent keep their defaults, so a run made by an older version restores.

    Args:
        values: nested dictionaries of JSON values.

    Raises:
        InputError: a field is unknown or its value has the wrong type.

    Example:
        >>> config_from_dict(config_to_dict(Config(seed=3))).seed
        3
    """
    return _build(Config, _move_fields(values), "")


_MOVED = {"data.crop_padding": "augmentation.crop_padding", "data.flip": "augmentation.flip"}
"""Fields of the runs of older versions, and where they are now."""


def _move_fields(values: Any) -> Any:
    """Return the values with fields of older versions where they are now."""
    for old, new in _MOVED.items():
        (old_part, old_name), (new_part, new_name) = old.split("."), new.split(".")
        if isinstance(values, dict) and isinstance(part := values.get(old_part), dict) and old_name in part:
            kept = {name: value for name, value in part.items() if name != old_name}
            target = {new_name: part[old_name], **values.get(new_part, {})}
            values = {**values, old_part: kept, new_part: target}
    return values


def strict_json(values: Any, *, indent: int | None = None) -> str:
    """Return JSON that every reader accepts: numbers that are not finite become null.

    Args:
        values: JSON values.
        indent: spaces a level; None: one line.

    Example:
        >>> strict_json({"loss": float("nan"), "steps": [1, 2]})
        '{"loss": null, "steps": [1, 2]}'
    """

    def mend(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: mend(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [mend(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(mend(values), indent=indent, allow_nan=False)


def flatten_config(config: Any) -> dict[str, Any]:
    """Return the leaves of a config, keyed by dotted path, such as ``splitting.steps``.

    Args:
        config: a `Config` or one of its parts.
    """
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            leaves |= {f"{field.name}.{path}": leaf for path, leaf in flatten_config(value).items()}
        else:
            leaves[field.name] = value
    return leaves


def _build(cls: type, values: Any, prefix: str) -> Any:
    if not isinstance(values, dict):
        raise InputError(f"`{prefix.rstrip('.') or 'config'}` must be an object, got {values!r}. Mend the file.")
    hints = get_type_hints(cls)
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            raise InputError(f"`{prefix}{name}` is not a field of the config: {suggest(name, hints)}. Mend the file.")
        arguments[name] = _convert(hints[name], value, prefix + name)
    return cls(**arguments)


def _convert(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, path + ".")  # pyright: ignore[reportArgumentType]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, path)
    if origin is Literal:
        if value not in arguments:
            raise InputError(
                f"`{path}` must be a known name, got {value!r}: {suggest(str(value), arguments)}. "
                "Set it in the config file."
            )
        return value
    if origin is tuple:
        variadic = len(arguments) == 2 and arguments[1] is Ellipsis
        if not isinstance(value, list | tuple) or not (variadic or len(value) == len(arguments)):
            count = "any" if variadic else len(arguments)
            raise InputError(f"`{path}` must be a list of {count} values, got {value!r}. Set it in the config file.")
        kinds = arguments[:1] * len(value) if variadic else arguments
        return tuple(_convert(kind, item, path) for kind, item in zip(kinds, value, strict=True))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > sys.float_info.max:
            raise InputError(f"`{path}` must be a number of double precision, got {value}. Set it in the config file.")
        return float(value)
    if type(value) is not hint:
        raise InputError(f"`{path}` must be of type {hint.__name__}, got {value!r}. Set it in the config file.")
    return value


def check_types(config: Config) -> Config:
    """Return the config with every leaf checked against its declared type.

    Python does not check the annotations of a dataclass, so a config file may hold anything.

    Args:
        config: a config as a file gives it.

    Raises:
        InputError: a leaf has the wrong type or is an unknown name.
    """
    return _build(Config, _shallow(config), "")


def _shallow(config: Any) -> Any:
    if dataclasses.is_dataclass(config):
        return {field.name: _shallow(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return config
