"""The one entry point that loads a data set, whichever its source."""

from collections.abc import Callable

from ctt.config.schema import DataConfig
from ctt.data.dataset import Dataset
from ctt.data.digits import read_digits
from ctt.data.holdout import hold_out
from ctt.data.prepared import read_prepared
from ctt.data.requirement import require_resolved


def load_dataset(
    config: DataConfig,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Dataset:
    """Load a data set and hold its validation split out.

    `digits` comes with scikit-learn; every other name is a prepared set of TensorFlow Datasets,
    read without TensorFlow. Its decoded images stay in a file of the cache, if `data.cache` allows,
    and are read when they are asked for (`Split.in_memory` reads them all).

    Args:
        config: resolved data configuration.
        progress: called with the number of images decoded so far and in all, now and then (not at
            all for `digits`, which are read in an instant, or where the cache has them).
        say: called with a line that the user should see, such as that the cache cannot be written;
            None: it is logged as a warning.

    Returns:
        The splits, the names of the classes and the fingerprint.

    Raises:
        InputError: the set is unknown, neither prepared nor downloadable, damaged, or it does not
            fit the configuration.

    Example:
        >>> from ctt.config.schema import DataConfig
        >>> config = DataConfig(name="digits", image_shape=(8, 8, 1), num_classes=10, val_size=180)
        >>> data = load_dataset(config)
        >>> len(data.train), len(data.val), len(data.test)
        (1257, 180, 360)
    """
    val_size = require_resolved(config.val_size, "data.val_size")
    official = read_digits(config) if config.name == "digits" else read_prepared(config, progress, say)
    kept, held = hold_out(official.train.labels, val_size, seed=config.split_seed)
    return Dataset(
        train=official.train.select(kept),
        val=official.train.select(held),
        test=official.test,
        class_names=official.class_names,
        fingerprint=official.fingerprint,
    )
