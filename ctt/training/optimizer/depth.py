"""Where a parameter stands along the depth of a network, and whether it is a matrix: axis 0 of a control is depth.

Both are read off the modules that hold the parameters and never off a number of axes, which cannot tell a stack of
biases from a matrix.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from optax.contrib import MuonDimensionNumbers

from ctt.models.classifier import Classifier
from ctt.models.evolution import Evolution
from ctt.typing import PyTree

Path = tuple[Any, ...]


@dataclass(frozen=True)
class Place:
    """What is known of one parameter.

    Attributes:
        layers: its layer, a number; of a stacked control the layers of its coefficients `[num_coefficients]`.
        reduction: of a stack of linear maps, the axes that a map sums over; else empty.
        output: of a stack of linear maps, the axes of its result; else empty.
    """

    layers: float | np.ndarray
    reduction: tuple[int, ...] = ()
    output: tuple[int, ...] = ()


@dataclass(frozen=True)
class Depth:
    """The parameters of a model along its depth.

    Attributes:
        last: layer of the read-out, one more than the number of time steps.
        places: by dotted name, the place of each parameter.
    """

    last: int
    places: Mapping[str, Place] = field(default_factory=dict)


def locate_parameters(model: Classifier) -> Depth:
    """Return the place of every parameter of a model.

    The lift is layer 0, time step n (from 1) layer n, the closing normalisation and the read-out the layer after the
    last step. A coefficient that acts in another stretch of time than one step takes the layer of that stretch's
    middle, ``t / dt + 1/2``: a knot over steps 1 to 4 is in layer 2.5, the node between steps 2 and 3 likewise. The
    steps of several stages are counted on, and what enters a stage is in the layer of the step before it.

    Args:
        model: a model, abstract or not.
    """
    modules = dict(nnx.iter_graph(model))
    stages, before = [], 0
    for evolution in model.evolutions:
        (path,) = (path for path, module in modules.items() if module is evolution)
        stages.append((path, evolution, before))
        before += evolution.steps
    last = before + 1
    places = {}
    for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        name = ".".join(map(str, path))
        places[name] = Place(float(last))
        for stage, evolution, offset in stages:
            if path[: len(stage)] == stage:
                layers = offset + _layers(evolution, str(path[len(stage) + 2]))  # After `controls` and `operators`.
                places[name] = Place(layers, *_axes(modules.get(path[:-1]), variable.shape))
            elif path[: len(stage) - 1] == stage[:-1] and (len(stage) > 1 or path[0] == "lift"):
                places[name] = Place(float(offset))
    return Depth(last, places)


def _layers(evolution: Evolution, operator: str) -> np.ndarray:
    """Return the layer of each coefficient of an operator, in its stage."""
    count = evolution.controls.basis.num_coefficients
    is_nodal = operator in evolution.controls.nodal
    middles = np.arange(count + 1) if is_nodal else np.arange(count) + 0.5
    return middles * evolution.steps / count + 0.5


def _axes(module: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which axes of a stacked parameter its linear map sums over and has as its result; none if it is no map.

    A linear map says how many features go in and come out, and its kernel has just these axes behind the depth: so a
    bias, a scale and the kernel of a convolution are none.
    """
    features = [getattr(module, name, None) for name in ("in_features", "out_features")]
    if None in features:
        return (), ()
    num_in, num_out = (tuple(value) if isinstance(value, tuple | list) else (value,) for value in features)
    if shape[1:] != (*num_in, *num_out):
        return (), ()
    first = 1 + len(num_in)
    return tuple(range(1, first)), tuple(range(first, len(shape)))


def name_parameter(path: Path) -> str:
    """Return the dotted name of a leaf of a parameter tree.

    Args:
        path: its path in the pytree.
    """
    names = [str(getattr(key, "key", getattr(key, "name", ""))) for key in path]
    return ".".join(names[:-1] if names[-1] == "value" else names)


def matrix_axes(depth: Depth) -> Callable[[PyTree], PyTree]:
    """Return the function that tells Muon the matrices of a tree of parameters: one a depth, in the controls alone.

    Args:
        depth: the places of the parameters.
    """

    def find(path: Path, leaf: Any) -> MuonDimensionNumbers | None:
        del leaf
        place = depth.places[name_parameter(path)]
        return MuonDimensionNumbers(place.reduction, place.output) if place.output else None

    return lambda params: jax.tree_util.tree_map_with_path(find, params)


def scale_by_layer(depth: Depth, decay: float) -> optax.GradientTransformation:
    """Return the transformation that multiplies an update in layer l by ``decay ** (last - l)``.

    Args:
        depth: the places of the parameters.
        decay: the factor from a layer to the one before it, in (0, 1].

    References:
        Bao et al., BEiT, arXiv:2106.08254, and timm; Clark et al., ELECTRA, arXiv:2003.10555.
    """

    def scale(path: Path, update: jax.Array) -> jax.Array:
        factors = decay ** (depth.last - np.asarray(depth.places[name_parameter(path)].layers))
        # The layers run along the first axis, and a single one along none.
        return update * jnp.asarray(factors, update.dtype).reshape(*factors.shape, *[1] * (update.ndim - factors.ndim))

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates))
