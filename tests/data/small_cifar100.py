"""A small data set with the name and the features of CIFAR-100, written without TensorFlow."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

NUM_TRAIN = 300
NUM_TEST = 100


def define_small_cifar100() -> type:
    """Return a TFDS builder with CIFAR-100's name, version and features, and random images."""
    import tensorflow_datasets as tfds

    class Cifar100(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.2")

        def _info(self) -> Any:
            features = {
                "id": tfds.features.Text(),
                "image": tfds.features.Image(shape=(32, 32, 3)),
                "label": tfds.features.ClassLabel(num_classes=100),
                "coarse_label": tfds.features.ClassLabel(num_classes=20),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
            return {"train": self._generate_examples(NUM_TRAIN), "test": self._generate_examples(NUM_TEST)}

        def _generate_examples(self, num_examples: int) -> Iterator[tuple[int, dict[str, Any]]]:
            for index in range(num_examples):
                # An open file is stored as it is; arrays would need TensorFlow to be encoded.
                file = io.BytesIO()
                Image.fromarray(draw_small_image(index)).save(file, "PNG")
                file.seek(0)
                label = index % 100
                yield index, {"id": f"{index:05d}", "image": file, "label": label, "coarse_label": label // 5}

    return Cifar100


def draw_small_image(index: int) -> np.ndarray:
    """Return the image of one example `[32, 32, 3]`; pixel (0, 0) carries its label."""
    image = np.random.default_rng(index).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    image[0, 0] = index % 100
    return image
