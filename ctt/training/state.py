"""What changes from one update to the next."""

from dataclasses import dataclass
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
        opt_state: the optimiser's state.
    """

    step: Int[Array, ""]
    params: PyTree
    opt_state: PyTree


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


def init_state(params: PyTree, optimizer: optax.GradientTransformation) -> TrainState:
    """Return the state before the first update.

    Args:
        params: initial weights.
        optimizer: the optimiser.
    """
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def state_record(state: TrainState) -> dict[str, Any]:
    """Return a training state as plain nested dictionaries, the form that checkpoints hold.

    Args:
        state: a training state, abstract or not.
    """
    leaves = jax.tree_util.tree_leaves_with_path(state.opt_state)
    return {
        "step": state.step,
        "params": nnx.to_pure_dict(state.params),
        "opt_state": {jax.tree_util.keystr(path): leaf for path, leaf in leaves},
    }


def state_from_record(record: dict[str, Any], template: TrainState) -> TrainState:
    """Return the training state of `state_record`.

    Args:
        record: nested dictionaries of arrays.
        template: a state of the same structure.
    """
    params = jax.tree.map(lambda x: x, template.params)
    nnx.replace_by_pure_dict(params, record["params"])
    leaves, structure = jax.tree_util.tree_flatten_with_path(template.opt_state)
    opt_state = jax.tree.unflatten(structure, [record["opt_state"][jax.tree_util.keystr(path)] for path, _ in leaves])
    return TrainState(record["step"], params, opt_state)
