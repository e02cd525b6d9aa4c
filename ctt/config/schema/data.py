"""Which images, and how they are split and augmented."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, how they are split and augmented."""

    name: str = "digits"
    """Data set: `digits` (bundled with scikit-learn) or any image classification set of TFDS."""
    dir: str | None = None
    """Folder that holds prepared TFDS data sets; None: TFDS's own default folder."""
    image_shape: tuple[int, int, int] | None = None
    """Height, width [pixels] and channels (1 or 3) seen by the model; other sizes are resized to it. \
None: known for digits, mnist, fashion_mnist, cifar10, cifar100, svhn_cropped."""
    num_classes: int | None = None
    """Number of classes, >= 2. None: known for the sets that `image_shape` names."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, in units of 255 (0 to 1). None: known for the sets that `image_shape` names, else 0.5."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel, in units of 255, > 0. None: as for `mean`, else 0.25."""
    val_size: int | None = None
    """Examples held out of the training split for validation, >= 1. None: 180 for digits, \
5,000 for the other sets that `image_shape` names."""
    split_seed: int = 0
    """Seed of the held-out split, in [0, 2^32); independent of `seed`, so that all runs share their test images."""
    crop_padding: int = 0
    """Random crop after padding each side by this many pixels, 0 (off) up to the image's side."""
    flip: bool = False
    """Mirror each training image left to right with probability 1/2."""
