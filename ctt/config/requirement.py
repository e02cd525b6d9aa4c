"""The one sentence that says what is wrong with a field."""

import math

from ctt.config.error import InputError


def require(holds: bool, field: str, requirement: str, received: object, *, remedy: str | None = None) -> None:
    """Raise the one sentence that says what is wrong with a field.

    Args:
        holds: whether the requirement is met.
        field: dotted path of the field, such as ``splitting.steps``.
        requirement: what must hold, completing "`field` must ...".
        received: the value.
        remedy: the way out; None: set the field in the file or on the command line.

    Raises:
        InputError: `holds` is false.
    """
    if not holds:
        remedy = remedy or f"Set it in the config file or pass --{field}."
        raise InputError(f"`{field}` must {requirement}, got {received!r}. {remedy}")


def at_least(field: str, value: float, bound: float) -> None:
    """Require a finite number that is not too small, and that a device can count to.

    Args:
        field: dotted path of the field.
        value: the number.
        bound: the smallest that will do.

    Raises:
        InputError: it is smaller, not finite, or a whole number of 2^31 or more.
    """
    require(value >= bound, field, f"be >= {bound}", value)
    require(isinstance(value, int) or math.isfinite(value), field, "be finite", value)
    require(not isinstance(value, int) or value < 2**31, field, "be < 2^31", value)
