"""Depthwise convolution as a sum of shifted copies against XLA's grouped convolution: one gradient, in turns.

python scripts/benchmark_depthwise.py [--json FILE]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ctt.dynamics import convolve_depthwise

SHAPES = ((64, 16, 16, 48, 1), (64, 16, 16, 48, 2), (64, 8, 8, 128, 1), (64, 8, 8, 128, 2))
"""Images, rows, columns, features, stride."""


def convolve_grouped(u: jax.Array, kernel: jax.Array, *, stride: int, padding: int) -> jax.Array:
    """Return XLA's convolution with one group a feature."""
    return jax.lax.conv_general_dilated(
        u,
        kernel[:, :, None, :],
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=u.shape[-1],
    )


def build_gradient(function: Callable[..., jax.Array], stride: int) -> Callable[..., Any]:
    """Return the compiled gradient of the squared norm of a convolution, with respect to state and kernel."""
    return jax.jit(jax.grad(lambda u, k: jnp.sum(function(u, k, stride=stride, padding=1) ** 2), argnums=(0, 1)))


def main() -> None:
    """Time both and print milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for batch, height, width, features, stride in SHAPES:
        keys = jax.random.split(jax.random.key(0))
        u, kernel = (
            jax.random.normal(k, s)
            for k, s in zip(keys, ((batch, height, width, features), (3, 3, features)), strict=True)
        )
        gradients = {
            "shifted": build_gradient(convolve_depthwise, stride),
            "grouped": build_gradient(convolve_grouped, stride),
        }
        seconds: dict[str, list[float]] = {name: [] for name in gradients}
        for _ in range(21):
            for name, gradient in gradients.items():
                begin = time.perf_counter()
                jax.block_until_ready(gradient(u, kernel))
                seconds[name].append(time.perf_counter() - begin)
        medians = {name: 1e3 * statistics.median(values[1:]) for name, values in seconds.items()}
        print(f"{batch} x {height} x {width} x {features}, stride {stride}: {medians}")
        rows.append({"shape": [batch, height, width, features], "stride": stride, **medians})
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
