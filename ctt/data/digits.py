"""The handwritten digits that are bundled with scikit-learn: a data set without a download."""

import numpy as np
from PIL import Image

from ctt.config.schema import DataConfig
from ctt.data.dataset import OfficialData, Split
from ctt.data.fingerprint import compute_fingerprint
from ctt.data.holdout import hold_out
from ctt.data.image import fit_image
from ctt.data.requirement import require_num_classes, require_resolved

_TEST_SIZE = 360
_TEST_SEED = 0


def read_digits(config: DataConfig) -> OfficialData:
    """Read the 1,797 digits of scikit-learn, 8 x 8 pixels of grey in 10 classes.

    The source has no test split of its own. Here 360 examples (stratified, seed 0, for ever) are
    the test split, and 1,437 the training split, out of which `data.val_size` (180 by default)
    are held out, which leaves 1,257. The source's grey values 0 to 16 are scaled to 0 to 255. The
    fingerprint is that of the 1,797 examples in the source's order.

    Args:
        config: resolved data configuration.

    Returns:
        The two splits, in the source's order within each.

    Raises:
        InputError: the config does not have 10 classes.

    References:
        E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
        Repository, 1998, doi:10.24432/C50P49 (the test part of it).
    """
    from sklearn.datasets import load_digits

    require_num_classes(config.num_classes, found=10, name="digits")
    image_shape = require_resolved(config.image_shape, "data.image_shape")
    grey, target = load_digits(return_X_y=True)
    pixels = np.rint(grey.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    if image_shape == (8, 8, 1):
        images = pixels[..., None]
    else:
        images = np.stack([fit_image(Image.fromarray(image), image_shape) for image in pixels])
    whole = Split(images, target.astype(np.int32))
    kept, held = hold_out(whole.labels, _TEST_SIZE, seed=_TEST_SEED)
    return OfficialData(
        train=whole.select(kept),
        test=whole.select(held),
        class_names=tuple(str(digit) for digit in range(10)),
        fingerprint=compute_fingerprint([whole]),
    )
