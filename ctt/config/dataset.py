"""Facts about known data sets, so that a model can be built before its data are read."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """What a config needs to know of a data set.

    Attributes:
        image_shape: height, width [pixels] and channels.
        num_classes: number of classes.
        mean: mean of each channel over the training split, in units of 255.
        std: standard deviation of each channel over the training split, in units of 255.
        val_size: examples held out of the training split by default.
    """

    image_shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    val_size: int


KNOWN_DATASETS: dict[str, DatasetFacts] = {
    "digits": DatasetFacts(image_shape=(8, 8, 1), num_classes=10, mean=(0.305,), std=(0.376,), val_size=180),
    "mnist": DatasetFacts(image_shape=(28, 28, 1), num_classes=10, mean=(0.131,), std=(0.308,), val_size=5000),
    "fashion_mnist": DatasetFacts(image_shape=(28, 28, 1), num_classes=10, mean=(0.286,), std=(0.353,), val_size=5000),
    "cifar10": DatasetFacts(
        image_shape=(32, 32, 3),
        num_classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        val_size=5000,
    ),
    "cifar100": DatasetFacts(
        image_shape=(32, 32, 3),
        num_classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        val_size=5000,
    ),
    "svhn_cropped": DatasetFacts(
        image_shape=(32, 32, 3),
        num_classes=10,
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        val_size=5000,
    ),
}


def find_facts(name: str) -> DatasetFacts | None:
    """Return what is known of a data set, or None.

    Args:
        name: its name, with or without a configuration (``/``) and a version (``:``).
    """
    return KNOWN_DATASETS.get(name.partition("/")[0].partition(":")[0])
