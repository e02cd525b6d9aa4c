"""Random choices that are the same on every machine: whole numbers and tables, never a formula of floats.

A compiled program may round a logarithm or a sum of products one way on one device and another way on two. So what is
drawn is a whole number, and what it stands for is worked out once, in float64 on the host, for every bin of a
distribution. All numbers that a choice needs are drawn at once, which also compiles several times faster.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, UInt32

NUM_BINS = 1024
"""Equally likely values that stand for a continuous distribution."""


def bin_centers() -> np.ndarray:
    """Return the probabilities at the centres of the bins `[NUM_BINS]`, at which tables hold the quantiles."""
    return (np.arange(NUM_BINS) + 0.5) / NUM_BINS


def draw(key: Key[Array, ""], count: int) -> UInt32[Array, " count"]:
    """Return independent numbers, uniform on all of 32 bits `[count]`.

    Args:
        key: draws them.
        count: how many.
    """
    return jax.random.bits(key, (count,), jnp.uint32)


def below(number: UInt32[Array, ""], end: int | Array) -> Int[Array, ""]:
    """Return a whole number in [0, end).

    Args:
        number: of `draw`.
        end: in [1, 2^15], so that no value is likelier than another by more than a part in 2^17.
    """
    return (number % jnp.asarray(end, jnp.uint32)).astype(jnp.int32)


def pick(number: UInt32[Array, ""], table: np.ndarray) -> Array:
    """Return one row of a table, each being as likely.

    Args:
        number: of `draw`.
        table: values `[bins, ...]`.
    """
    return jnp.asarray(table)[below(number, len(table))]


def happens(number: UInt32[Array, ""], probability: float) -> Bool[Array, ""]:
    """Return whether something of the given probability happens.

    Args:
        number: of `draw`.
        probability: in [0, 1].
    """
    return (number >> 8) < jnp.uint32(round(probability * 2**24))
