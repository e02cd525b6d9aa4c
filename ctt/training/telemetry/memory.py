"""How much memory a run takes."""

import sys
from typing import Any

import jax


def measure_memory() -> dict[str, float]:
    """Return the largest use of memory so far [bytes].

    Returns:
        ``device_memory_bytes``, of the local device that used most, where the devices count it; else, as on a CPU,
        ``host_memory_bytes``, the resident set of this process, where the system counts it.
    """
    peaks = [stats["peak_bytes_in_use"] for stats in map(_read_stats, jax.local_devices()) if stats]
    if peaks:
        return {"device_memory_bytes": float(max(peaks))}
    try:
        import resource
    except ImportError:  # Windows.
        return {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"host_memory_bytes": float(peak if sys.platform == "darwin" else peak * 1024)}


def _read_stats(device: Any) -> dict[str, int] | None:
    stats = device.memory_stats()
    return stats if stats and "peak_bytes_in_use" in stats else None
