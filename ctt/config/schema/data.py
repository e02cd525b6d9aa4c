"""Which images, how they are split, and how they are augmented."""

from dataclasses import dataclass

from ctt.config.name import InputName


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, and how they are split."""

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
    cache: bool = True
    """Keep the decoded images on disk (in $CTT_CACHE_DIR, by default ~/.cache/ctt), so that they are decoded once."""
    input: InputName = "auto"
    """How images reach the device: `resident` (all of them once), `stream` (batch by batch, read ahead), or `auto` \
(resident up to a quarter of the device's memory, or up to 4 GiB on a CPU). The batches are the same."""


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig:
    """What a training image becomes, drawn anew in every step; in this order."""

    crop_padding: int = 0
    """Random crop after padding each side by this many pixels, 0 (off) up to the image's side."""
    flip: bool = False
    """Mirror each training image left to right with probability 1/2."""
    randaugment: int = 0
    """Operations of RandAugment an image, each done with probability 1/2; 0: off, 2: usual."""
    randaugment_magnitude: float = 9.0
    """Mean strength of RandAugment, in [0, 10]."""
    randaugment_magnitude_std: float = 0.5
    """Standard deviation of the strength of RandAugment, >= 0."""
    color_jitter: float = 0.0
    """Brightness, contrast and saturation are multiplied by factors up to this far from 1, >= 0; 0: off."""
    erasing: float = 0.0
    """Probability of painting over a random rectangle of 2 to 33 % of the image, in [0, 1]."""
    mixup: float = 0.0
    """Concentration a of the Beta(a, a) from which mixup draws its shares, >= 0; 0: off."""
    cutmix: float = 0.0
    """Concentration a of the Beta(a, a) from which cutmix draws its shares, >= 0; 0: off."""
    mix_probability: float = 1.0
    """Probability of mixing an example by mixup or cutmix, in [0, 1]."""
    cutmix_share: float = 0.5
    """Where both mixup and cutmix are on, the share of the mixed examples that is cutmix, in [0, 1]."""
