"""One mesh of devices, with the axes `data` and `fsdp`, and the rule by which arrays lie on it."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ctt.config.error import InputError
from ctt.config.schema import DevicesConfig
from ctt.typing import PyTree

_AXES = ("data", "fsdp")

_SMALLEST = 4096
"""Arrays of fewer numbers are not worth a message between devices, and are held whole by each."""


@dataclass(frozen=True)
class Layout:
    """How the arrays of a run lie on its devices.

    A batch is shared among all devices. Weights, and what the optimiser keeps of each, are cut up among the `fsdp`
    devices of a group, along their longest axis that can be; never along axis 0 of a control, which is depth, so that
    the loop over steps finds each step whole on every group.
    """

    mesh: Mesh

    @property
    def num_shares(self) -> int:
        """Number of parts of a batch."""
        return self.mesh.size

    @property
    def whole(self) -> NamedSharding:
        """Every device holds all of an array."""
        return NamedSharding(self.mesh, PartitionSpec())

    def batch(self, *, axis: int = 0) -> NamedSharding:
        """Every device holds its share of an array's examples.

        Args:
            axis: the axis of the examples.
        """
        return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, _AXES))

    def cut(self, tree: PyTree) -> PyTree:
        """Return the sharding of each array of a training state.

        Args:
            tree: arrays, abstract or not.
        """
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: NamedSharding(self.mesh, self._spec(path, leaf.shape)), tree
        )

    def _spec(self, path: tuple[Any, ...], shape: tuple[int, ...]) -> PartitionSpec:
        parts = self.mesh.shape["fsdp"]
        if parts == 1 or math.prod(shape) < _SMALLEST:
            return PartitionSpec()
        is_control = "controls" in {str(getattr(key, "key", getattr(key, "name", ""))) for key in path}
        axes = [axis for axis in range(int(is_control), len(shape)) if shape[axis] % parts == 0]
        if not axes:
            return PartitionSpec()
        longest = max(axes, key=lambda axis: shape[axis])
        return PartitionSpec(*[None] * longest, "fsdp")

    def place(self, tree: PyTree, shardings: PyTree) -> PyTree:
        """Put arrays, of which every process holds all, onto the devices.

        Args:
            tree: arrays.
            shardings: a sharding for all of them, or one for each.
        """
        if isinstance(shardings, NamedSharding):
            only = shardings
            shardings = jax.tree.map(lambda leaf: only, tree)
        if jax.process_count() == 1:
            return jax.device_put(tree, shardings)

        def put(leaf: Any, sharding: NamedSharding) -> jax.Array:
            array = np.asarray(leaf)
            return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

        return jax.tree.map(put, tree, shardings)

    def place_shares(self, tree: PyTree, *, axis: int) -> PyTree:
        """Put arrays, of which every process holds its own share of the examples, onto the devices.

        Args:
            tree: arrays of this process.
            axis: the axis of the examples.
        """
        sharding = self.batch(axis=axis)
        return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)

    def gather(self, tree: PyTree) -> PyTree:
        """Return arrays whole, on every process; where they are whole already, nothing is moved.

        Args:
            tree: arrays on the devices, or on the host.
        """
        if all(getattr(leaf, "is_fully_replicated", True) for leaf in jax.tree.leaves(tree)):
            return tree
        return jax.jit(lambda tree: tree, out_shardings=jax.tree.map(lambda leaf: self.whole, tree))(tree)


def build_layout(config: DevicesConfig, batch_size: int) -> Layout:
    """Return the mesh of a run.

    Args:
        config: the config's devices.
        batch_size: images a step, on all devices.

    Raises:
        InputError: there are fewer devices than asked for, or several processes whose devices cannot share the batch.
    """
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    available = len(devices)
    if config.data is None:
        groups = available // config.fsdp
        while groups > 1 and batch_size % (groups * config.fsdp):
            groups -= 1
    else:
        groups = config.data
    wanted = max(groups, 1) * config.fsdp
    if wanted > available:
        raise InputError(
            f"`devices.data` times `devices.fsdp` must be at most the number of devices, {available}, got {wanted}. "
            "Pass smaller numbers."
        )
    if jax.process_count() > 1 and wanted != available:
        raise InputError(
            f"`training.batch_size` must be a multiple of the {available} devices of all processes, which share every "
            f"batch, got {batch_size} for {wanted} of them. Pass another --training.batch-size, --devices.data or "
            "--devices.fsdp."
        )
    return Layout(Mesh(np.asarray(devices[:wanted]).reshape(-1, config.fsdp), _AXES))
