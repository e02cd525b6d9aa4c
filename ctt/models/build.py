"""From a config to a model."""

from collections.abc import Callable

import jax
from flax import nnx
from jax.core import Tracer

from ctt.config.error import InputError
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config
from ctt.models.classifier import Classifier
from ctt.models.cvt import CvT
from ctt.models.vit import ViT

MODELS: dict[str, Callable[..., Classifier]] = {"vit": ViT, "cvt": CvT}
"""Models by name."""


def build_model(config: Config, seed: int | None = None) -> Classifier:
    """Build the model of a config with its initial weights.

    Args:
        config: a config; it is resolved first.
        seed: seed of the initial weights; None: ``config.seed``.

    Returns:
        An nnx module: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255], to
        logits `[batch, classes]`.

    Raises:
        InputError: the config cannot be used, or asks for float64 while jax has it switched off.

    Example:
        >>> import numpy as np
        >>> model = build_model(Config(), seed=0)
        >>> model(np.zeros((2, 8, 8, 1), np.uint8)).shape
        (2, 10)
    """
    config = resolve_config(config)
    if config.model.dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise InputError(
            "`model.dtype` must be float32 or bfloat16 unless jax computes in 64 bits, got 'float64'. Set the "
            "environment variable JAX_ENABLE_X64=1."
        )
    key = initial_key(config.seed if seed is None else seed)
    return _initialize(lambda key: MODELS[config.model.name](config, key=key), key)


def _initialize(make: Callable[[jax.Array], Classifier], key: jax.Array) -> Classifier:
    """Return ``make(key)``, its initial weights drawn by one compiled program.

    The program runs once, so on a CPU it is compiled without optimisation: a fifth of the time of drawing
    array by array. Values do not depend on the backend's options beyond round-off.
    """
    if isinstance(key, Tracer):  # Inside somebody's jit or eval_shape.
        return make(key)
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    structure = nnx.graphdef(nnx.eval_shape(make, key))
    draw = jax.jit(lambda key: nnx.state(make(key)), compiler_options=options)
    return nnx.merge(structure, draw(key))


def initial_key(seed: int) -> jax.Array:
    """Return the key of the initial weights of a run.

    Args:
        seed: the run's seed, in [0, 2^32).
    """
    return jax.random.fold_in(jax.random.key(seed), 0)


def count_parameters(model: nnx.Module) -> int:
    """Return the number of learnable scalars.

    Args:
        model: a module, abstract or not.
    """
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
