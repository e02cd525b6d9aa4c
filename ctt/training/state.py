"""What changes from one update to the next."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from ctt.typing import Array, Int, Labels, PyTree, UInt8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """The state of training. All randomness is a function of the seed and the step.

    Attributes:
        step: number of finished updates.
        params: learnable weights.
        statistics: running averages of batch normalisation; empty without it.
        opt_state: the optimiser's state.
        average: moving average of `weights`; empty without one.
    """

    step: Int[Array, ""]
    params: PyTree
    statistics: PyTree
    opt_state: PyTree
    average: PyTree = field(default_factory=lambda: nnx.State({}))

    @property
    def weights(self) -> PyTree:
        """The learnable weights, where gradients are taken, and the running averages; see `measured_weights`."""
        return nnx.merge_state(self.params, self.statistics)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Examples of one update.

    Attributes:
        images: raw pixels.
        labels: class indices.
    """

    images: UInt8[Array, "batch height width channels"]
    labels: Labels


def init_state(
    params: PyTree, statistics: PyTree, optimizer: optax.GradientTransformation, *, has_average: bool = False
) -> TrainState:
    """Return the state before the first update.

    Args:
        params: initial weights.
        statistics: initial running averages.
        optimizer: the optimiser.
        has_average: whether a moving average of the weights is kept; it begins with the initial ones.
    """
    state = TrainState(jnp.zeros((), jnp.int32), params, statistics, optimizer.init(params))
    if not has_average:
        return state
    # Arrays of its own, so that all of a state can be donated.
    return dataclasses.replace(state, average=jax.tree.map(jnp.copy, state.weights))


def state_record(state: TrainState) -> dict[str, Any]:
    """Return a training state as plain nested dictionaries, the form that checkpoints hold.

    Args:
        state: a training state, abstract or not.
    """
    leaves = jax.tree_util.tree_leaves_with_path(state.opt_state)
    return {
        "step": state.step,
        "params": weights_record(state.params),
        # A run without batch normalisation has none, and its checkpoints no such entry.
        **({"statistics": weights_record(state.statistics)} if jax.tree.leaves(state.statistics) else {}),
        "opt_state": {jax.tree_util.keystr(path): leaf for path, leaf in leaves},
        **({"average": weights_record(state.average)} if jax.tree.leaves(state.average) else {}),
    }


def state_from_record(record: dict[str, Any], template: TrainState) -> TrainState:
    """Return the training state of `state_record`.

    Args:
        record: nested dictionaries of arrays.
        template: a state of the same structure.
    """
    params = weights_from_record(record["params"], template.params)
    statistics = weights_from_record(record.get("statistics", {}), template.statistics)
    leaves, structure = jax.tree_util.tree_flatten_with_path(template.opt_state)
    opt_state = jax.tree.unflatten(structure, [record["opt_state"][jax.tree_util.keystr(path)] for path, _ in leaves])
    average = weights_from_record(record.get("average", {}), template.average)
    return TrainState(record["step"], params, statistics, opt_state, average)


def weights_record(weights: PyTree) -> dict[str, Any]:
    """Return the state of a module as nested dictionaries with keys of text, as files want them.

    Args:
        weights: an nnx state, abstract or not.
    """

    def name(values: Any) -> Any:
        return {str(key): name(value) for key, value in values.items()} if isinstance(values, dict) else values

    return name(nnx.to_pure_dict(weights))


def weights_from_record(record: dict[str, Any], template: PyTree) -> PyTree:
    """Return the state of a module of `weights_record`.

    Args:
        record: nested dictionaries of arrays.
        template: a state of the same structure.
    """

    def find(path: tuple[Any, ...], variable: Any) -> Any:
        value: Any = record
        for key in path:
            value = value[str(key)]
        return variable.replace(value)

    return nnx.from_flat_state([(path, find(path, variable)) for path, variable in nnx.to_flat_state(template)])
