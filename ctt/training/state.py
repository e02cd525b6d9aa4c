"""What changes from one update to the next."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

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
