"""What lies beside a file of weights: `config.json` and `preprocessor_config.json` of other libraries."""

import math
from collections.abc import Mapping
from typing import Any

from ctt.config.error import InputError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the channels of ImageNet."""


def read(given: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any) -> Any:
    """Return a field of a config of another library.

    Args:
        given: the config.
        name: of the field.
        kind: what its value must be.
        default: what holds where it is absent.

    Raises:
        InputError: it is something else.
    """
    value = given.get(name)
    if value is None:
        return default
    if not is_usable(value, kind):
        raise InputError(f"`{name}` beside the weights has a value that cannot be used, {value!r}. Mend config.json.")
    return value


def is_usable(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Return whether a value is of a kind; no flag is a number, and numbers are finite and of fewer than 32 bits.

    Args:
        value: what a JSON file has.
        kind: what it must be.
    """
    if isinstance(value, bool):
        return kind is bool
    is_moderate = not isinstance(value, int | float) or abs(value) < 2**31  # False for nan and infinity.
    return isinstance(value, kind) and is_moderate


def unify(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `config.json`, those of timm under the names of transformers.

    Args:
        config: the model's `config.json`.
    """
    arguments, pretrained = (
        value if isinstance(value, dict) else {} for value in (config.get("model_args"), config.get("pretrained_cfg"))
    )
    size = pretrained.get("input_size")
    timm = {
        "num_attention_heads": arguments.get("num_heads"),
        "hidden_act": arguments.get("act_layer"),
        "image_size": arguments.get("img_size") or (size[1:] if isinstance(size, list) else None),
        "global_pool": arguments.get("global_pool"),
    }
    return {name: value for fields in (timm, config) for name, value in fields.items() if value is not None}


def read_statistics(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any], default: tuple[tuple[float, ...], tuple[float, ...]]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, in units of 255.

    A preprocessor makes ``(factor * pixels - mean) / std`` of pixels in [0, 255], where either may be switched off.

    Args:
        config: the model's `config.json`; timm keeps the two there.
        preprocessor: its `preprocessor_config.json`.
        default: mean and standard deviation where nothing is said.

    Raises:
        InputError: they are no numbers.
    """
    timm = config.get("pretrained_cfg")
    timm = timm if isinstance(timm, dict) else {}
    mean = preprocessor.get("image_mean") or timm.get("mean") or default[0]
    std = preprocessor.get("image_std") or timm.get("std") or default[1]
    if not read(preprocessor, "do_normalize", bool, True):
        mean, std = (0.0,) * len(default[0]), (1.0,) * len(default[0])
    factor = read(preprocessor, "rescale_factor", (int, float), 1 / 255)
    factor = factor if read(preprocessor, "do_rescale", bool, True) else 1.0
    scale = 1.0 if math.isclose(255 * factor, 1.0) else 255 * factor
    try:
        return tuple(float(value) / scale for value in mean), tuple(float(value) / scale for value in std)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(
            f"`image_mean`, `image_std` and `rescale_factor` must be numbers, got {mean}, {std} and {factor}. Mend "
            "preprocessor_config.json."
        ) from error


def read_image_size(preprocessor: Mapping[str, Any], default: int = 224) -> tuple[int, int]:
    """Return the height and width [pixels] of what a preprocessor makes of an image.

    Args:
        preprocessor: the model's `preprocessor_config.json`.
        default: the side where it does not say.

    Raises:
        InputError: it says something else than a size.
    """
    is_cropped = read(preprocessor, "do_center_crop", bool, False)
    name = "crop_size" if is_cropped and "crop_size" in preprocessor else "size"
    size = read(preprocessor, name, (int, dict), default)
    if not isinstance(size, dict):
        return size, size
    edge = read(size, "shortest_edge", int, default)
    return read(size, "height", int, edge), read(size, "width", int, edge)


def read_class_names(config: Mapping[str, Any], num_classes: int) -> tuple[str, ...]:
    """Return a name a class: those of `id2label` or timm's `label_names`, else numbers.

    Args:
        config: the model's `config.json`.
        num_classes: number of classes.
    """
    names = config.get("id2label")
    if isinstance(names, dict) and len(names) == num_classes:
        return tuple(str(names.get(str(n), n)) for n in range(num_classes))
    labels = config.get("label_names")
    if isinstance(labels, list) and len(labels) == num_classes:
        return tuple(str(label) for label in labels)
    return tuple(str(n) for n in range(num_classes))
