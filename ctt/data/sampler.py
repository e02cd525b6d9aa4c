"""Which examples make a batch: a pure function of the seed and the step, so a run can resume anywhere."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Float32, Int32

from ctt.config.error import InputError

# Separates this stream of random numbers from the others that start from the run's seed.
_SAMPLER_TAG = 0x5A3B1E


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """Return the number of full batches in a pass over the examples.

    Args:
        num_examples: examples of the training split.
        batch_size: examples a step.

    Returns:
        The number of steps, >= 1; the remainder of each epoch's permutation is left out.

    Raises:
        InputError: a batch is empty or larger than the training split.
    """
    if not 1 <= batch_size <= num_examples:
        raise InputError(
            f"`training.batch_size` must be >= 1 and <= {num_examples}, the examples of the training split, "
            f"got {batch_size}. Set it in the config file or pass --training.batch_size."
        )
    return num_examples // batch_size


def batch_indices(seed: int, step: int, *, num_examples: int, batch_size: int) -> Int32[np.ndarray, " batch"]:
    """Return the examples of one training step.

    Step ``s`` belongs to epoch ``e = s // steps_per_epoch``, and takes its part of a permutation
    of the examples that depends on `seed` and ``e`` alone. The last ``num_examples % batch_size``
    entries of each permutation are left out; they differ from epoch to epoch.

    Args:
        seed: the run's seed, in [0, 2^32).
        step: the optimiser step, >= 0.
        num_examples: examples of the training split.
        batch_size: examples a step.

    Returns:
        Indices `[batch]` into the training split, without repetition; read-only.

    Raises:
        InputError: a batch is empty or larger than the training split.

    Example:
        >>> batches = [batch_indices(0, step, num_examples=6, batch_size=2) for step in range(3)]
        >>> sorted(int(index) for batch in batches for index in batch)
        [0, 1, 2, 3, 4, 5]
    """
    epoch, position = divmod(step, steps_per_epoch(num_examples, batch_size))
    start = position * batch_size
    return _permute(seed, epoch, num_examples=num_examples)[start : start + batch_size]


@functools.lru_cache(maxsize=4)
def _permute(seed: int, epoch: int, *, num_examples: int) -> np.ndarray:
    """Return the permutation `[num_examples]` of one epoch, read-only because it is cached."""
    with jax.default_device(_find_host()):
        # The generator is named, so that jax's default cannot change the batches of a resumed run.
        key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), _SAMPLER_TAG)
        permutation = np.array(jax.random.permutation(jax.random.fold_in(key, epoch), num_examples), dtype=np.int32)
    permutation.flags.writeable = False
    return permutation


def _find_host() -> Any:
    """Return the host's processor, which does not queue behind training steps; None where jax has been denied it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def padded_batches(
    num_examples: int, batch_size: int
) -> Iterator[tuple[Int32[np.ndarray, " batch"], Float32[np.ndarray, " batch"]]]:
    """Yield every example once, in order, in batches of one size.

    Args:
        num_examples: examples of the split.
        batch_size: examples a batch, >= 1.

    Yields:
        Indices `[batch]` and weights `[batch]`; the last batch is filled up with example 0 at
        weight 0, all other weights are 1.

    Example:
        >>> [(indices.tolist(), weights.tolist()) for indices, weights in padded_batches(3, 2)]
        [([0, 1], [1.0, 1.0]), ([2, 0], [1.0, 0.0])]
    """
    for start in range(0, num_examples, batch_size):
        positions = np.arange(start, start + batch_size)
        is_real = positions < num_examples
        yield np.where(is_real, positions, 0).astype(np.int32), is_real.astype(np.float32)
