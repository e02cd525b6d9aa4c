"""The footprint of a config, from abstract values: nothing is run."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.extend import core

from ctt.config.resolve import resolve_config
from ctt.config.schema import Config
from ctt.config.stage import stage_grids
from ctt.models.build import build_model, count_parameters
from ctt.models.classifier import Classifier
from ctt.models.evolution import Evolution
from ctt.splitting.substep import Substep
from ctt.training.state import Batch
from ctt.training.step import build_update
from ctt.typing import PyTree


def measure_footprint(config: Config) -> dict[str, Any]:
    """Return parameters, substeps, FLOPs and memory of a config.

    FLOPs are those of matrix products and convolutions, two for a multiplication and an addition,
    as the program is written: a recomputation counts. Bytes of temporaries are those that XLA plans
    for one update on this machine's kind of device; the training images are not counted.

    Args:
        config: a config.

    Returns:
        JSON values; FLOPs of one image forward and of one update of a whole batch, bytes of the weights,
        of the optimiser's state and of an update's temporaries.

    Raises:
        InputError: the config cannot be used.
    """
    config = resolve_config(config)
    model = nnx.eval_shape(lambda: build_model(config))
    num_parameters = count_parameters(model)
    evolutions = list(model.evolutions)
    first = evolutions[0]  # The stages of a CvT have the same scheme.
    assert config.data.image_shape is not None
    image = jax.ShapeDtypeStruct((1, *config.data.image_shape), jnp.uint8)
    graphdef, weights = nnx.split(model)
    forward_flops = count_flops(lambda w, x: nnx.merge(graphdef, w)(x), weights, image)

    size = config.training.batch_size
    batch = Batch(
        jax.ShapeDtypeStruct((size, *config.data.image_shape), jnp.uint8),  # pyright: ignore[reportArgumentType]
        jax.ShapeDtypeStruct((size,), jnp.int32),  # pyright: ignore[reportArgumentType]
    )
    state, update = _abstract_update(config, model)
    compiled = jax.jit(update, donate_argnums=0).lower(state, batch).compile()
    memory = compiled.memory_analysis()
    return {
        "model": config.model.name,
        "num_parameters": num_parameters,
        "parameters": _count_parts(model),
        "tokens": _one_or_all(_num_tokens(config)),
        "scheme": describe_scheme(first),
        "substep": describe_substeps(first),
        "steps": sum(evolution.steps for evolution in evolutions),
        **({"steps_of_stages": [evolution.steps for evolution in evolutions]} if len(evolutions) > 1 else {}),
        "horizon": config.splitting.horizon,
        "substeps_per_step": first.scheme.num_letters if first.scheme is not None else 1,
        "field_evaluations_per_step": first.field_evaluations / first.steps,
        "field_evaluations": sum(evolution.field_evaluations for evolution in evolutions),
        "forward_flops": forward_flops,
        "update_flops": count_flops(update, state, batch),
        "batch_size": size,
        "weights_bytes": _num_bytes(state.params),
        "optimizer_bytes": _num_bytes(state.opt_state),
        "temporaries_bytes": int(memory.temp_size_in_bytes) if memory is not None else 0,
    }


def describe_scheme(evolution: Evolution) -> str:
    """Return the name, the words and the order of a network's scheme.

    Args:
        evolution: the depth of a network, abstract or not.
    """
    scheme = evolution.scheme
    if scheme is None:
        return "literal: the layer (3.5)-(3.10), at step 1 only"
    order = "no splitting error" if scheme.order == math.inf else f"order {scheme.order:g} with exact substeps"
    merged = ", ends merged" if scheme.merge_ends else ""
    kind = "palindrome" if scheme.is_symmetric else "not a palindrome"
    return f"{scheme.name}: {scheme.describe(evolution.controls.names)}{merged}; {order}, {kind}"


def describe_substeps(evolution: Evolution) -> str:
    """Return the substeps of a network's operators and their orders.

    Args:
        evolution: the depth of a network, abstract or not.
    """

    def describe(method: Substep) -> str:
        return "exact flow" if method.is_exact else f"{method.name}, order {method.order:g}"

    texts = [describe(method) for method in evolution.substeps]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"{name}: {text}" for name, text in zip(evolution.controls.names, texts, strict=True))


def _abstract_update(config: Config, model: Classifier) -> tuple[Any, Callable[..., Any]]:
    updates: list[Callable[..., Any]] = []

    def init() -> Any:
        state, update = build_update(config, model, 2)
        updates.append(update)
        return state

    return jax.eval_shape(init), updates[0]


def _num_tokens(config: Config) -> list[int]:
    """Return the tokens of each stage; the class token belongs to the last."""
    tokens = [rows * columns for rows, columns in stage_grids(config)]
    tokens[-1] += config.model.pooling == "cls"
    return tokens


def _one_or_all(values: list[int]) -> int | list[int]:
    return values[0] if len(values) == 1 else values


def _count_parts(model: nnx.Module) -> dict[str, int]:
    """Return the scalars of each part of a model, of a CvT stage by stage."""
    counts: dict[str, int] = {}
    for name, part in nnx.state(model, nnx.Param).items():
        if name == "stages":
            counts |= {f"stage {index + 1}": _num_scalars(stage) for index, stage in part.items()}
        else:
            counts[str(name)] = _num_scalars(part)
    return counts


def _num_scalars(tree: PyTree) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def _num_bytes(tree: PyTree) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def count_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the FLOPs of the matrix products and convolutions of a function.

    A loop's body counts as often as it runs, which the compiler's own cost analysis does not do.

    Args:
        function: a traceable function.
        arguments: arrays or abstract arrays.

    Example:
        >>> count_flops(jnp.dot, jnp.ones((2, 3)), jnp.ones((3, 5)))
        60
    """
    return _flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def _flops(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        output = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
        if name == "dot_general":
            (contracting, _), _ = equation.params["dimension_numbers"]
            total += 2 * output * math.prod(equation.invars[0].aval.shape[axis] for axis in contracting)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            out_axis = equation.params["dimension_numbers"].rhs_spec[0]
            total += 2 * output * math.prod(kernel) // kernel[out_axis]
        else:
            repeats = equation.params["length"] if name == "scan" else 1
            total += repeats * sum(_flops(inner) for inner in _inner_jaxprs(equation.params))
    return total


def _inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item
