"""What every source of data asks of the configuration before it reads a single image."""

from typing import TypeVar

from ctt.config.error import InputError

Value = TypeVar("Value")


def require_resolved(value: Value | None, field: str) -> Value:
    """Return `value`, which a resolved config always has.

    Args:
        value: the field's value.
        field: the field's dotted name, such as `data.val_size`.

    Returns:
        The value, known not to be None.

    Raises:
        InputError: the value is None.
    """
    if value is None:
        raise InputError(f"`{field}` must be known, got None. Resolve the config first, or pass --{field}.")
    return value


def require_num_classes(num_classes: int | None, *, found: int, name: str) -> None:
    """Refuse a config whose number of classes is not the data set's.

    Args:
        num_classes: what the config says.
        found: what the data set has.
        name: the data set's name.

    Raises:
        InputError: the two differ.
    """
    if num_classes != found:
        raise InputError(
            f"`data.num_classes` must be {found}, the number of classes of {name}, got {num_classes}. "
            f"Set it in the config file or pass --data.num_classes {found}."
        )
