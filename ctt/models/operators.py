"""From names to operators: the right-hand side that a config asks for."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.error import InputError, suggest
from ctt.config.schema import Config
from ctt.config.stage import token_grid
from ctt.dynamics.attention import SelfAttention
from ctt.dynamics.convolution import ConvolutionalAttention
from ctt.dynamics.feedforward import FeedForward
from ctt.dynamics.heat import HeatDiffusion
from ctt.dynamics.literal import LiteralLayer
from ctt.dynamics.normalization import Normalization
from ctt.dynamics.operator import Operator
from ctt.dynamics.placement import place_operator
from ctt.dynamics.skew import SkewMixing

Builder = Callable[..., Any]
"""``builder(config, rngs=rngs)``: an operator of one instant, with its initial weights."""


def _dtypes(config: Config) -> dict[str, Any]:
    dtype = jnp.dtype(config.model.dtype)
    return {"dtype": dtype, "param_dtype": jnp.promote_types(dtype, jnp.float32)}


def _attention(config: Config, *, rngs: nnx.Rngs) -> SelfAttention | ConvolutionalAttention:
    model = config.model
    features = model.width // model.num_heads if model.score_scale == "head" else model.width
    common = {"biases": model.attention_biases, "scale": features**-0.5, "rngs": rngs, **_dtypes(config)}
    if model.name != "cvt":
        return SelfAttention(model.width, model.num_heads, is_causal=model.causal, **common)
    stages = model.stages  # Those of this stage alone, see `split_stages`.
    return ConvolutionalAttention(
        model.width,
        model.num_heads,
        token_grid(config),
        side=stages.projection_kernels[0],
        key_value_stride=stages.key_value_strides[0],
        key_value_padding=stages.key_value_paddings[0],
        normalization=model.convolution_normalization,
        num_prefix_tokens=int(model.pooling == "cls"),
        **common,
    )


def _feedforward(config: Config, *, rngs: nnx.Rngs) -> FeedForward:
    model = config.model
    return FeedForward(
        model.width,
        model.feedforward_width,
        activation=model.activation,
        use_bias=model.feedforward_bias,
        rngs=rngs,
        **_dtypes(config),
    )


def _heat(config: Config, *, rngs: nnx.Rngs) -> HeatDiffusion:
    return HeatDiffusion(
        config.model.width,
        token_grid(config),
        num_prefix_tokens=int(config.model.pooling == "cls"),
        diffusivity=config.model.heat_diffusivity,
        rngs=rngs,
        **_dtypes(config),
    )


def _skew(config: Config, *, rngs: nnx.Rngs) -> SkewMixing:
    return SkewMixing(config.model.width, method=config.model.skew_flow, rngs=rngs, **_dtypes(config))


OPERATORS: dict[str, Builder] = {
    "attention": _attention,
    "feedforward": _feedforward,
    "heat": _heat,
    "skew": _skew,
}
"""Operators by name. One from outside is named ``package.module:Class`` or ``folder/file.py:Class``."""


def build_operators(config: Config) -> Callable[[nnx.Rngs], dict[str, Any]]:
    """Return what makes the operators of one instant, each as the config places it.

    Args:
        config: a resolved config.

    Returns:
        A function of the randomness; its result has the order in which a scheme counts the operators. With the
        scheme `literal` that is the one layer, which has a `step` and no field.

    Raises:
        InputError: an operator's name is unknown, or names nothing that can be used.
    """
    if config.splitting.scheme == "literal":
        return lambda rngs: {"layer": build_literal(config, rngs=rngs)}
    builders = {operator_label(name): _find_builder(name) for name in config.model.operators}
    if len(builders) < len(config.model.operators):
        raise InputError(
            f"`model.operators` must have different names, got {', '.join(config.model.operators)}. Rename a class."
        )
    norm = config.normalization

    def build(rngs: nnx.Rngs) -> dict[str, Any]:
        shared = build_normalization(config, rngs) if norm.shared else None
        operators = {}
        for name, builder in builders.items():
            operator = _make(name, builder, config, rngs)
            operators[name] = place_operator(norm.placement, operator, shared or build_normalization(config, rngs))
        return operators

    return build


def _make(name: str, builder: Builder, config: Config, rngs: nnx.Rngs) -> Operator:
    try:
        operator = builder(config, rngs=rngs)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"The operator `{name}` cannot be made ({type(error).__name__}: {error}). It is called as "
            f"{name}(config, rngs=rngs): mend the class."
        ) from error
    if not isinstance(operator, Operator):
        raise InputError(
            f"The operator `{name}` must have a method `vector_field(t, u)`, got {type(operator).__name__}. Add one to "
            "the class."
        )
    arrays = [key for key, value in getattr(operator, "__dict__", {}).items() if isinstance(value, jax.Array)]
    if arrays and not isinstance(operator, nnx.Module):
        raise InputError(
            f"The operator `{name}` must be an nnx.Module to hold arrays, got {', '.join(arrays)} in a plain class. "
            "Derive it from flax.nnx.Module and wrap them in nnx.Param or nnx.Variable."
        )
    return operator


def operator_label(name: str) -> str:
    """Return what words and messages call an operator: its name, or the class of one from outside.

    Args:
        name: an entry of `model.operators`.

    Example:
        >>> operator_label("physics/wind.py:Wind")
        'Wind'
    """
    return name.rpartition(":")[2]


def build_normalization(config: Config, rngs: nnx.Rngs) -> Normalization:
    """Return the normalisation of a config.

    Args:
        config: a resolved config.
        rngs: randomness.
    """
    norm = config.normalization
    return Normalization(
        config.model.width,
        affine=norm.affine,
        eps=norm.eps,
        constraint=norm.constraint,
        param_dtype=_dtypes(config)["param_dtype"],
        rngs=rngs,
    )


def build_read_out(config: Config, rngs: nnx.Rngs) -> nnx.Linear:
    """Return the linear map from the pooled features to the logits.

    Args:
        config: a resolved config.
        rngs: randomness of the initial weights (stream ``params``).
    """
    assert config.data.num_classes is not None  # The config is resolved.
    return nnx.Linear(
        config.model.width,
        config.data.num_classes,
        kernel_init=nnx.initializers.truncated_normal(0.02),
        rngs=rngs,
        **_dtypes(config),
    )


def build_literal(config: Config, *, rngs: nnx.Rngs) -> LiteralLayer:
    """Return one layer of the literal scheme.

    Args:
        config: a resolved config.
        rngs: randomness.
    """
    model = config.model
    return LiteralLayer(
        model.width,
        model.num_heads,
        num_linear=model.feedforward_layers,
        biases=model.attention_biases,
        use_bias=model.feedforward_bias,
        affine=config.normalization.affine,
        eps=config.normalization.eps,
        is_causal=model.causal,
        rngs=rngs,
        **_dtypes(config),
    )


def _find_builder(name: str) -> Builder:
    if name in OPERATORS:
        return OPERATORS[name]
    place, colon, class_name = name.rpartition(":")
    if not colon or not place or not class_name.isidentifier():
        raise InputError(
            f"`model.operators` must hold known names, or package.module:Class, got {name!r}: "
            f"{suggest(name, OPERATORS)}."
        )
    module = _load_file(place, name) if place.endswith(".py") else _import_module(place, name)
    if not callable(getattr(module, class_name, None)):
        raise InputError(f"`model.operators` names {name!r}, but `{place}` has no class {class_name}. Check the name.")
    return getattr(module, class_name)


def _import_module(place: str, name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except Exception as error:
        raise InputError(
            f"`model.operators` names {name!r}, whose module cannot be imported ({type(error).__name__}: {error}). "
            "Install it, run in its folder, or give the path of its file as folder/file.py:Class."
        ) from error
    finally:
        sys.path.remove(str(Path.cwd()))


def _load_file(place: str, name: str) -> ModuleType:
    path = Path(place)
    if not path.is_file():
        raise InputError(
            f"`model.operators` names {name!r}, but the file `{place}` does not exist. Check the path, "
            "or run in the folder from which it is counted."
        )
    spec = importlib.util.spec_from_file_location(f"_ctt_operator_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # As a dataclass of the file wants it.
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"`model.operators` names {name!r}, whose file raised {type(error).__name__}: {error}. Mend the file."
        ) from error
    finally:
        sys.path.remove(folder)
    return module
