"""What all tests share: tolerances by type, float64, and models small enough to compile at once."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import settings

from ctt.config import Config, DataConfig, ModelConfig, NormalizationConfig, SplittingConfig, resolve_config

# The time of an example is mostly the machine's load and never decides a test.
settings.register_profile("ctt", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("ctt")

# Largest relative difference between two ways to compute the same numbers.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the user's caches out of all tests, and those that they start, and what is cached here out of them."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTT_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def fast_compilation() -> dict[str, Any]:
    """Options for `jax.jit` that quarter the time of compilation: a tiny model runs in no time anyway."""
    is_cpu = jax.default_backend() == "cpu"
    return {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False} if is_cpu else {}


@pytest.fixture(scope="session")
def tolerances() -> dict[str, float]:
    """Largest relative difference between two ways to compute the same numbers, by type."""
    return TOLERANCES


@pytest.fixture
def float64() -> Iterator[None]:
    """Compute in 64 bits during a test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def relative_difference() -> Callable[[Any, Any], float]:
    """Return the norm of the difference of two pytrees over the norm of the second, all leaves together."""

    def norm(leaves: list[np.ndarray]) -> float:
        return float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in leaves)))

    def measure(received: Any, expected: Any) -> float:
        pairs = zip(jax.tree.leaves(received), jax.tree.leaves(expected), strict=True)
        arrays = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs]
        assert all(a.shape == b.shape for a, b in arrays)
        return norm([a - b for a, b in arrays]) / norm([b for _, b in arrays])

    return measure


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., Config]:
    """Return a maker of small resolved configs; fields are given by dotted path."""

    def make(overrides: dict[str, Any] | None = None) -> Config:
        config = Config(
            data=DataConfig(name="tiny", image_shape=(4, 6, 1), num_classes=3, val_size=5, mean=(0.3,), std=(0.4,)),
            model=ModelConfig(patch_size=2, width=8, num_heads=2, feedforward_width=12),
            normalization=NormalizationConfig(eps=1e-5),
            splitting=SplittingConfig(steps=2),
        )
        for path, value in (overrides or {}).items():
            head, _, leaf = path.rpartition(".")
            if head:
                config = dataclasses.replace(
                    config, **{head: dataclasses.replace(getattr(config, head), **{leaf: value})}
                )
            else:
                config = dataclasses.replace(config, **{leaf: value})
        return resolve_config(config)

    return make


@pytest.fixture(scope="session")
def draw_weights() -> Callable[..., Any]:
    """Return a function that builds a module with every weight drawn at random, and compiles nothing.

    Scales differ from 1 and biases from 0, so that a test sees them.
    """

    def draw(build: Callable[[], Any], *, seed: int = 0, size: float = 0.3) -> Any:
        generator = np.random.default_rng(seed)
        module = nnx.eval_shape(build)

        def draw_leaf(path: tuple[Any, ...], leaf: Any) -> Any:
            centre = 1.0 if "'scale'" in jax.tree_util.keystr(path) else 0.0
            return jnp.asarray(centre + size * generator.standard_normal(leaf.shape), leaf.dtype)

        graphdef, state = nnx.split(module)
        return nnx.merge(graphdef, jax.tree_util.tree_map_with_path(draw_leaf, state))

    return draw


@pytest.fixture(scope="session")
def call_jitted(fast_compilation: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that calls ``method(module, *args)`` compiled once, weights being arguments."""

    def call(method: Callable[..., Any], module: Any, *args: Any) -> Any:
        graphdef, state = nnx.split(module)
        run = jax.jit(lambda state, *args: method(nnx.merge(graphdef, state), *args), compiler_options=fast_compilation)
        return run(state, *args)

    return call
