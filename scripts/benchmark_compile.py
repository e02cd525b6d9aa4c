"""Compile time of one update against depth, paired and interleaved.

    python scripts/benchmark_compile.py --steps 6 48 --pairs 5

The loop over steps is one `lax.scan`, so compile time should not grow with the number of steps: the
ratio of the deeper to the shallower network should stay below 1.2.
"""

import dataclasses
import statistics
import time

import jax
import tyro

from ctt.config import Config, SplittingConfig, resolve_config
from ctt.models import build_model
from ctt.training.state import Batch
from ctt.training.step import build_update


def measure_compile_seconds(config: Config) -> float:
    """Return the seconds from a traced update to an executable one.

    Args:
        config: a config.
    """
    config = resolve_config(config)
    state, update = build_update(config, build_model(config), 100)
    size = config.training.batch_size
    assert config.data.image_shape is not None
    images = jax.numpy.zeros((size, *config.data.image_shape), jax.numpy.uint8)
    batch = Batch(images, jax.numpy.zeros(size, jax.numpy.int32))
    jax.clear_caches()
    begin = time.perf_counter()
    jax.jit(update).lower(state, batch).compile()
    return time.perf_counter() - begin


def main(steps: tuple[int, int] = (6, 48), pairs: int = 5) -> None:
    """Print the median compile time at two depths, and the median of the paired ratios.

    Args:
        steps: the two depths.
        pairs: how many pairs are measured after one that is not counted, >= 1.
    """
    seconds: dict[int, list[float]] = {n: [] for n in steps}
    for pair in range(pairs + 1):
        for n in steps:
            config = dataclasses.replace(Config(), splitting=SplittingConfig(steps=n))
            value = measure_compile_seconds(config)
            if pair > 0:
                seconds[n].append(value)
    ratios = [b / a for a, b in zip(seconds[steps[0]], seconds[steps[1]], strict=True)]
    for n in steps:
        print(f"{n:3d} steps: median {statistics.median(seconds[n]):.2f} s of {[round(s, 2) for s in seconds[n]]}")
    print(f"ratio: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    tyro.cli(main)
