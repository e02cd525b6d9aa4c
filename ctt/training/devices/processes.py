"""Several processes, each with devices of its own: how they find each other, agree, and part."""

import contextlib
import hashlib
import os
import re
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ctt.config.error import InputError, RunStoppedError
from ctt.config.schema import Config, DevicesConfig
from ctt.config.serialize import flatten_config


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
    if environment.get("JAX_PLATFORMS", "") in ("", "tpu", "tpu,cpu"):
        hosts = (environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES", "")).split(",")
        if environment.get("MEGASCALE_COORDINATOR_ADDRESS"):
            return "several slices of TPUs"
        if len(hosts) > 1:
            return f"a TPU pod of {len(hosts)} hosts"
        if _is_tpu_host():
            return "a TPU host"
    return "devices.distributed on" if config.distributed == "on" else None


def _is_tpu_host() -> bool:
    """Return whether this machine has TPU chips, and jax could use them."""
    import importlib.util

    has_chips = Path("/dev/accel0").exists() or Path("/dev/vfio/0").exists()
    return has_chips and importlib.util.find_spec("libtpu") is not None


def find_local_devices(environment: Mapping[str, str]) -> list[int] | None:
    """Return what to tell jax of the devices that are this process's: none in particular where it is alone on its node.

    Under Slurm jax gives every process the one device of its number on the node, also where there is one process a
    node, which would leave the other devices idle.

    Args:
        environment: the variables of this process.
    """
    is_alone = re.fullmatch(r"1(\(x\d+\))?", environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    return [] if is_alone else None


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
                find_local_devices(os.environ),
                initialization_timeout=seconds + _GRACE,
                heartbeat_timeout_seconds=max(seconds, _SHORTEST_HEARTBEAT),
                shutdown_timeout_seconds=seconds,
            )
    except Exception as error:  # The client raises RuntimeError of several kinds, the detection ValueError.
        if reason == "a TPU host" and config.distributed == "auto" and isinstance(error, ValueError):
            return None  # A single host that no cluster knows of.
        if isinstance(error, ValueError):
            raise InputError(
                f"The addresses of this run's processes must be known to jax ({reason}), got none: "
                f"{_first_line(error)} Pass --devices.coordinator, --devices.num-processes and --devices.process-id, "
                "or --devices.distributed off to run on this host alone."
            ) from error
        if "before any JAX" in str(error):
            raise InputError(
                f"The processes of a run ({reason}) must be joined before jax touches a device, and here it has. Train "
                "by `ctt train`, call jax.distributed.initialize() first, or set devices.distributed to off."
            ) from error
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
    timer = threading.Timer(seconds, _end, [message, _EXIT_STATUS])
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


_OWN = frozenset({"data.dir", "data.cache", "devices.process_id", "devices.timeout"})
"""Fields that each process may have its own of."""


def require_same(values: Mapping[str, Any], config: Config | None = None) -> None:
    """Require that all processes of a run have the same of what makes it; every process must ask.

    Args:
        values: what must be the same, by a name that a person knows it by; the same names in all processes.
        config: a config whose fields must be the same too, but for those that say where a process is.

    Raises:
        InputError: they differ, and some process would work at another run.
    """
    if jax.process_count() == 1:
        return
    fields = {} if config is None else flatten_config(config)
    texts = [f"{name}={value!r}" for name, value in {**values, **fields}.items() if name not in _OWN]
    whole = np.frombuffer(hashlib.sha256("\n".join(texts).encode()).digest(), np.uint32)
    # The same number of bytes whatever the processes were started with, or they would not understand each other.
    digests = np.asarray(multihost_utils.process_allgather(np.append(whole, np.uint32(len(texts)))))
    if np.all(digests == digests[0]):
        return
    differing = "version of ctt"
    if np.all(digests[:, -1] == digests[0, -1]):
        marks = np.asarray(multihost_utils.process_allgather(np.asarray([zlib.crc32(t.encode()) for t in texts], "u4")))
        names = [text.partition("=")[0] for text in texts]
        differing = ", ".join(name for name, column in zip(names, marks.T, strict=True) if np.any(column != column[0]))
    raise InputError(
        f"All processes of a run must have the same config, arguments and data, and they differ in: {differing}. Start "
        "all of them by the same command but for --devices.process-id."
    )


@contextlib.contextmanager
def part_in_time() -> Iterator[None]:
    """See to it that where one process of a run fails the others end too, and each with a plain message.

    Jax lets a process that leaves wait for the others, who may be waiting for this one in the midst of a sum. What
    befalls all of them, such as a signal, they leave by together; one that nobody follows goes after some seconds,
    which the others notice by its silence.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or "RESOURCE_EXHAUSTED" in str(error):
            raise
        _end(
            "Another process of this run ended or does not answer, so this one ends too; what was saved is kept. See "
            f"what the others say, and go on by starting all of them with --resume. ({_first_line(error)})",
            _EXIT_STATUS,
        )
    except (InputError, RunStoppedError, OSError) as error:
        if jax.process_count() > 1:
            status = getattr(error, "exit_status", _EXIT_STATUS)
            timer = threading.Timer(_FAREWELL, os._exit, [status])
            timer.daemon = True
            timer.start()
        raise


_FAREWELL = 10
"""Seconds that a process which failed waits for the others to leave with it."""


def _end(message: str, status: int) -> None:
    """End the process at once, without the farewell that jax would wait for."""
    sys.stdout.flush()
    print(f"ctt: {message}", file=sys.stderr, flush=True)
    os._exit(status)
