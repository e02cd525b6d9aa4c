"""Prepared examples, decoded some at a time."""

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ctt.config.error import InputError
from ctt.config.schema import DataConfig
from ctt.data.dataset import Split
from ctt.data.image import decode_image, guard_decoding
from ctt.data.requirement import require_resolved

DECODING_VERSION = 1
"""Counted up whenever the same files would be decoded, or resized, to other pixels."""

_CHUNK = 500


class EncodedSplit:
    """One split of a prepared set, whose images are decoded each time they are asked for.

    Attributes:
        split: the source's name of the split.
        image_shape: height, width [pixels] and channels of the decoded images.
    """

    def __init__(self, builder: Any, config: DataConfig, *, split: str):
        """Open a split.

        Args:
            builder: the TFDS builder of a prepared set.
            config: resolved data configuration.
            split: the source's name of the split.

        Raises:
            InputError: the set is damaged, or not in array_record format.
        """
        self.split = split
        self.image_shape = require_resolved(config.image_shape, "data.image_shape")
        self._builder, self._config = builder, config
        self._source = _open_source(builder, config, split=split)

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._source)

    def chunks(self, count: Callable[[int], None]) -> Iterator[Split]:
        """Decode all examples in order; damage of any kind becomes one clear error.

        Args:
            count: called with the number of examples of each chunk.

        Yields:
            Some hundred examples each.

        Raises:
            InputError: the set is damaged, or has an image without a label.
        """
        import tensorflow_datasets as tfds

        info = self._builder.info
        features: Any = tfds.features.FeaturesDict({name: info.features[name] for name in ("image", "label")})
        encoded = {"image": tfds.decode.SkipDecoding()}
        for start in range(0, len(self), _CHUNK):
            indices = range(start, min(start + _CHUNK, len(self)))
            images = np.empty((len(indices), *self.image_shape), np.uint8)
            labels = np.empty(len(indices), np.int32)
            try:
                with guard_decoding():
                    for row, record in zip(range(len(indices)), self._source.__getitems__(list(indices)), strict=True):
                        example = features.deserialize_example_np(record, decoders=encoded)
                        images[row] = decode_image(io.BytesIO(example["image"]), self.image_shape, is_upright=True)
                        labels[row] = example["label"]
            except Exception as error:  # From the C++ reader, protobuf or Pillow, each with its own types.
                raise report_damage(self._config, error, place=os.fspath(self._builder.data_path)) from error
            if not (labels.min() >= 0 and labels.max() < info.features["label"].num_classes):
                raise InputError(
                    f"`data.name` must be a set whose train and test images are all labelled, got {self._config.name!r}"
                    " with images without a label. Choose another set with --data.name."
                )
            count(len(indices))
            yield Split(images, labels)


def report_damage(config: DataConfig, error: Exception, *, place: str) -> InputError:
    """Return the error for prepared data that cannot be read.

    Args:
        config: data configuration.
        error: what went wrong.
        place: the folder.
    """
    return InputError(
        f"`data.name` must be a data set whose prepared files are whole, got {config.name!r} in {place} "
        f"({join_lines(error)}). Delete that folder and prepare or copy the set again."
    )


def join_lines(error: Exception) -> str:
    """Return the start of an error's message on one line, or its type if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _open_source(builder: Any, config: DataConfig, *, split: str) -> Any:
    """Return a sequence of the split's encoded examples."""
    import tensorflow_datasets as tfds

    found = {file_format.value for file_format in builder.info.available_file_formats()}
    if "array_record" not in found:
        raise InputError(
            f"`data.dir` must hold data in array_record format, which is read without TensorFlow, got "
            f"{os.fspath(builder.data_path)} in {', '.join(sorted(found)) or 'no'} format. Prepare the set in another "
            f"folder with `tfds build {config.name} --file_format=array_record --data_dir=FOLDER` and pass --data.dir."
        )
    raw = tfds.decode.DeserializeMethod.RAW_BYTES
    try:
        return builder.as_data_source(split, deserialize_method=raw, file_format="array_record")
    except Exception as error:  # The reader is C++ and raises RuntimeError, ValueError and others.
        raise report_damage(config, error, place=os.fspath(builder.data_path)) from error
