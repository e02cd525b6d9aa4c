"""The exact recoveries: at step 1 a scheme is a known architecture, to round-off."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ctt.certificates.check import Check, check_bound, exact_arithmetic
from ctt.certificates.order import randomize
from ctt.certificates.plain import PlainLayer
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config, DataConfig, ModelConfig, NormalizationConfig, SplittingConfig
from ctt.models.evolution import Evolution
from ctt.models.operators import build_operators
from ctt.splitting.order import quick_options

_WIDTH, _HEADS, _LAYERS = 12, 3, 3


def check_recoveries() -> Iterator[Check]:
    """Check that schemes with Euler substeps of length 1 are known encoders, in float64, three layers deep.

    The encoders are in plain numpy (`ctt.certificates.plain`), with the weights of the scheme. Differences are
    relative to the largest entry.
    """
    cases: list[tuple[str, dict[str, Any], Callable[[PlainLayer, np.ndarray], np.ndarray], float]] = [
        (
            "literal, eps 0 = Vaswani encoder with I + W_j",
            {"scheme": "literal", "eps": 0.0},
            PlainLayer.post_norm,
            1e-13,
        ),
        ("literal, eps 1e-5 = the same", {"scheme": "literal", "eps": 1e-5}, PlainLayer.post_norm, 1e-13),
        (
            "lie, post, ReLU = post-norm encoder",
            {"placement": "post", "activation": "relu"},
            PlainLayer.post_norm,
            1e-12,
        ),
        ("lie, post, GELU = post-norm encoder", {"placement": "post"}, PlainLayer.post_norm, 1e-12),
        ("lie, pre, ReLU = pre-norm encoder", {"activation": "relu"}, PlainLayer.pre_norm, 1e-12),
        ("lie, pre, GELU = pre-norm encoder (ViT)", {}, PlainLayer.pre_norm, 1e-12),
        ("parallel, pre = summed attention and feed-forward", {"scheme": "parallel"}, PlainLayer.summed, 1e-12),
        ("strang_reversed, pre = Macaron with tied halves", {"scheme": "strang_reversed"}, PlainLayer.macaron, 1e-12),
    ]
    for name, options, layer, bound in cases:
        with exact_arithmetic():
            difference = _difference(options, layer)
        yield check_bound(name, difference, bound)


def _difference(options: dict[str, Any], layer: Callable[[PlainLayer, np.ndarray], np.ndarray]) -> float:
    config = _config(**options)
    evolution = randomize(Evolution(config, build_operators(config), key=jax.random.key(0)))
    u0 = np.random.default_rng(1).standard_normal((2, 5, _WIDTH))
    received = np.asarray(jax.jit(lambda u: evolution(u)[0], compiler_options=quick_options())(u0))
    expected = u0
    for plain in _layers(config, evolution):
        expected = layer(plain, expected)
    return float(np.max(np.abs(received - expected)) / np.max(np.abs(expected)))


def _config(*, scheme: str = "lie", placement: str = "pre", activation: str = "gelu", eps: float = 1e-5) -> Config:
    is_literal = scheme == "literal"
    return resolve_config(
        Config(
            data=DataConfig(name="digits"),
            model=ModelConfig(
                width=_WIDTH,
                num_heads=_HEADS,
                feedforward_width=_WIDTH if is_literal else 20,
                activation="relu" if is_literal else activation,  # pyright: ignore[reportArgumentType]
                dtype="float64",
            ),
            normalization=NormalizationConfig(
                placement="post" if is_literal else placement,  # pyright: ignore[reportArgumentType]
                eps=eps,
            ),
            splitting=SplittingConfig(scheme=scheme, steps=_LAYERS),  # pyright: ignore[reportArgumentType]
        )
    )


def _layers(config: Config, evolution: Evolution) -> list[PlainLayer]:
    operators = evolution.controls.operators
    is_literal = config.splitting.scheme == "literal"

    def read(module: Any, n: int, *names: str) -> dict[str, np.ndarray]:
        return {name: np.asarray(getattr(module, name)[...][n]) for name in names}

    layers = []
    for n in range(_LAYERS):
        if is_literal:
            layer = operators["layer"]
            attention, norms = layer.attention, (layer.opening, layer.closing)
            chain = [read(linear, n, "kernel", "bias") for linear in layer.linears]
            chain = [{"kernel": np.eye(_WIDTH) + x["kernel"], "bias": x["bias"]} for x in chain]
        else:
            attention = operators["attention"].operator
            norms = operators["attention"].normalization, operators["feedforward"].normalization
            feedforward = operators["feedforward"].operator
            chain = [read(part, n, "kernel", "bias") for part in (feedforward.expand, feedforward.contract)]
        projections = ("query", "key", "value", "output")
        layers.append(
            PlainLayer(
                attention={name: read(getattr(attention, name), n, "kernel", "bias") for name in projections},
                feedforward=chain,
                attention_norm=read(norms[0], n, "scale", "bias"),
                feedforward_norm=read(norms[1], n, "scale", "bias"),
                num_heads=config.model.num_heads,
                activation=config.model.activation,
                eps=config.normalization.eps,
            )
        )
    return layers
