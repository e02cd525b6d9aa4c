"""The machines that share a run."""

from dataclasses import dataclass

from ctt.config.name import DistributedName


@dataclass(frozen=True, kw_only=True)
class DevicesConfig:
    """The devices of a run and what each of them holds; changes no batch and no random number."""

    data: int | None = None
    """Groups of devices that share a batch, >= 1; times `fsdp` it divides `training.batch_size`. None: as many as \
there are devices for and the batch can be shared among."""
    fsdp: int = 1
    """Devices of a group, >= 1: among them weights, averages and moments are cut up, and the group's images shared."""
    distributed: DistributedName = "auto"
    """Whether several processes share the run: `auto`, where `coordinator`, Slurm, Open MPI or a TPU pod say so; \
`on`; `off`."""
    coordinator: str | None = None
    """Address host:port of process 0. None: found by Slurm, Open MPI or the TPU pod."""
    num_processes: int | None = None
    """Number of processes, >= 1; goes with `coordinator`. None: as for `coordinator`."""
    process_id: int | None = None
    """Number of this process, in [0, num_processes); goes with `coordinator`. None: as for `coordinator`."""
    timeout: float = 300.0
    """Seconds to wait for the other processes at the start and at every meeting, >= 1."""
