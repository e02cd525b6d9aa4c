"""Whether the training images live on the device or stream to it."""

from typing import Literal

import jax

from ctt.config.schema import DataConfig

RESIDENT_SHARE = 0.25
"""Share of a device's memory that resident images may take with `data.input` auto."""
RESIDENT_BYTES = 4 * 2**30
"""Bytes that resident images may take where a device does not tell its memory, as CPUs do not."""


def choose_input(config: DataConfig, num_bytes: int, device_bytes: int | None) -> Literal["resident", "stream"]:
    """Return how the training images reach the device.

    Args:
        config: data configuration; anything but `auto` is obeyed.
        num_bytes: size of the training images [bytes].
        device_bytes: memory of a device [bytes], see `find_device_bytes`; None: unknown.

    Returns:
        `resident` or `stream`.

    Example:
        >>> choose_input(DataConfig(), 138_240_000, 16 * 2**30)
        'resident'
        >>> choose_input(DataConfig(), 193 * 2**30, 80 * 2**30)
        'stream'
    """
    if config.input != "auto":
        return config.input
    limit = RESIDENT_BYTES if device_bytes is None else RESIDENT_SHARE * device_bytes
    return "resident" if num_bytes <= limit else "stream"


def find_device_bytes() -> int | None:
    """Return the memory [bytes] of this process's first device, or None where it does not tell."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit")
