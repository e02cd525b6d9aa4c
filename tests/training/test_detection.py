"""Whether several processes share a run is read off the launcher's variables, never guessed."""

import os
import re
import subprocess
import sys

import jax
import pytest
from jax._src import clusters

import ctt.training.devices.processes as processes
from ctt.config.error import InputError
from ctt.config.schema import DevicesConfig
from ctt.training.devices.processes import find_local_devices, find_reason, join_processes

# What `srun --ntasks 2 --ntasks-per-node 1` gives its first task.
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}
# Of a job with more tasks than the shell at hand has: `salloc --ntasks 4` gives a plain shell, or a step of one task;
# a batch script has the first set, too.
ALLOCATED = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
INTERACTIVE = ALLOCATED | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NODELIST": "node1"}


@pytest.fixture(autouse=True)
def _no_chips(monkeypatch):
    monkeypatch.setattr(processes, "_is_tpu_host", lambda: False)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        ALLOCATED,
        INTERACTIVE,
        SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"},
        OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"},
        {"TPU_WORKER_HOSTNAMES": "localhost"},
        {"TPU_WORKER_HOSTNAMES": ""},
        {"TPU_WORKER_HOSTNAMES": "a,b", "JAX_PLATFORMS": "cpu"},
    ],
    ids=["none", "salloc", "salloc_step", "one_task", "mpirun_1", "one_tpu_host", "empty", "cpu_on_a_pod"],
)
def test_a_single_process_waits_for_nobody(environment):
    assert find_reason(DevicesConfig(), environment) is None
    assert find_reason(DevicesConfig(distributed="on"), environment) is not None


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (SLURM, "Slurm, 2 processes"),
        (OPEN_MPI, "Open MPI, 2 processes"),
        ({"TPU_WORKER_HOSTNAMES": "a,b,c,d"}, "a TPU pod of 4 hosts"),
        ({"TPU_PROCESS_ADDRESSES": "a:1,b:1", "TPU_WORKER_HOSTNAMES": "a"}, "a TPU pod of 2 hosts"),
        ({"MEGASCALE_COORDINATOR_ADDRESS": "a"}, "several slices of TPUs"),
    ],
)
def test_the_launcher_is_named(environment, reason):
    assert find_reason(DevicesConfig(), environment) == reason
    assert find_reason(DevicesConfig(distributed="off"), environment) is None


def test_a_coordinator_that_is_given_comes_before_any_launcher():
    config = DevicesConfig(coordinator="10.0.0.1:1234", num_processes=2, process_id=1)
    assert find_reason(config, SLURM) == "devices.coordinator 10.0.0.1:1234"


def test_a_host_with_chips_asks_its_pod(monkeypatch):
    monkeypatch.setattr(processes, "_is_tpu_host", lambda: True)
    assert find_reason(DevicesConfig(), {}) == "a TPU host"
    assert find_reason(DevicesConfig(), {"JAX_PLATFORMS": "cpu"}) is None


@pytest.mark.parametrize(("environment", "number"), [(SLURM, 0), (OPEN_MPI, 1)])
def test_jax_finds_by_the_same_variables_whom_to_wait_for(monkeypatch, environment, number):
    _set_environment(monkeypatch, environment)
    _, count, found, _ = clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, 1)
    assert (count, found) == (2, number)


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        (SLURM, []),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1"}, []),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "8(x2)"}, None),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1,2"}, None),
        ({}, None),
    ],
)
def test_a_process_that_is_alone_on_its_node_has_all_its_devices(environment, devices):
    assert find_local_devices(environment) == devices


def test_a_launcher_that_jax_cannot_read_is_said_at_once(monkeypatch):
    _set_environment(monkeypatch, {key: value for key, value in OPEN_MPI.items() if "uri" not in key})  # Open MPI 5.
    program = (
        "from ctt.config.schema import DevicesConfig; from ctt.training.devices import join_processes; "
        "join_processes(DevicesConfig(timeout=30))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert re.search(r"InputError: .*Open MPI, 2 processes.*Pass --devices\.coordinator", ended.stderr), ended.stderr


def test_processes_that_come_too_late_are_told_so(monkeypatch):
    _set_environment(monkeypatch, OPEN_MPI)
    jax.devices()
    with pytest.raises(InputError, match=r"Open MPI, 2 processes\) must be joined before jax touches a device"):
        join_processes(DevicesConfig(timeout=5))


def _set_environment(monkeypatch, environment):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "OMPI_", "TPU_", "MEGASCALE_"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
