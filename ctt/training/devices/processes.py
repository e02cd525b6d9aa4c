"""Several processes, each with devices of its own: how they find each other and how they agree."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from ctt.config.error import InputError
from ctt.config.schema import DevicesConfig


def find_reason(config: DevicesConfig, environment: Mapping[str, str]) -> str | None:
    """Return what says that several processes share a run, or None.

    Args:
        config: the config's devices.
        environment: the variables of this process.
    """
    if config.distributed == "off":
        return None
    if config.coordinator is not None:
        return f"devices.coordinator {config.coordinator}"
    for variable, launcher in (("SLURM_STEP_NUM_TASKS", "Slurm"), ("OMPI_COMM_WORLD_SIZE", "Open MPI")):
        count = environment.get(variable, "")
        if count.isdecimal() and int(count) > 1:
            return f"{launcher}, {count} processes"
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
    if len(hosts) > 1 or environment.get("MEGASCALE_COORDINATOR_ADDRESS"):
        return f"a TPU pod of {len(hosts)} hosts"
    if _is_tpu_host():
        return "a TPU host"
    return "devices.distributed on" if config.distributed == "on" else None


def _is_tpu_host() -> bool:
    """Return whether this machine has TPU chips, and jax may use them."""
    import importlib.util

    platforms = os.environ.get("JAX_PLATFORMS", "")
    has_chips = Path("/dev/accel0").exists() or Path("/dev/vfio/0").exists()
    return has_chips and importlib.util.find_spec("libtpu") is not None and platforms in ("", "tpu", "tpu,cpu")


def join_processes(config: DevicesConfig) -> str | None:
    """Join the other processes of a run, if there are any; before anything touches a device.

    Args:
        config: the config's devices.

    Returns:
        What was joined, as a sentence, or None.

    Raises:
        InputError: the other processes cannot be found, or do not come in time.
    """
    reason = find_reason(config, os.environ)
    if reason is None or jax.distributed.is_initialized():
        return None
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    seconds = round(config.timeout)
    remedy = (
        f"The other processes of this run ({reason}) were not found within {seconds} s. Start the same command on "
        "every host at about the same time, check that the address of process 0 can be reached, or pass "
        "--devices.distributed off to run on this host alone."
    )
    try:
        with _deadline(seconds, remedy):
            jax.distributed.initialize(
                config.coordinator,
                config.num_processes,
                config.process_id,
                initialization_timeout=seconds + _GRACE,
                heartbeat_timeout_seconds=max(seconds, _SHORTEST_HEARTBEAT),
            )
    except Exception as error:  # The client raises RuntimeError of several kinds, the detection ValueError.
        if reason == "a TPU host" and config.distributed == "auto" and isinstance(error, ValueError):
            return None  # A single host that no cluster knows of.
        raise InputError(f"{remedy} ({_first_line(error)})") from error
    return f"Process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices ({reason})."


_EXIT_STATUS = 2  # As of any wrong input.

_GRACE, _SHORTEST_HEARTBEAT = 60, 30
"""Seconds: how much later than ours the client's own deadline is, and how long a process may be silent at least."""


@contextlib.contextmanager
def _deadline(seconds: float, message: str) -> Iterator[None]:
    """End the process with a message if what is within takes too long.

    The client of jax waits in C++, where no exception of Python reaches it, and aborts with a stack trace at its own
    deadline; so this one comes first.
    """

    def end() -> None:
        print(f"ctt: {message}", file=sys.stderr, flush=True)
        os._exit(_EXIT_STATUS)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def is_leader() -> bool:
    """Return whether this process writes the files of the run."""
    return jax.process_index() == 0


def agree(*values: int) -> tuple[int, ...]:
    """Return, of each number, the largest that any process gives; every process must ask.

    Args:
        values: whole numbers of this process.
    """
    if jax.process_count() == 1:
        return values
    gathered = multihost_utils.process_allgather(np.asarray(values, np.int32))
    return tuple(int(value) for value in np.max(np.asarray(gathered), axis=0))


def wait_for_all(name: str, *, timeout: float) -> None:
    """Wait until every process has come here; end this one with a message if they do not.

    Args:
        name: of the meeting.
        timeout: seconds to wait.
    """
    if jax.process_count() > 1:
        with _deadline(
            timeout, f"The other processes did not come to `{name}` within {timeout:g} s. Start them again."
        ):
            multihost_utils.sync_global_devices(name)
