"""Data sets of TensorFlow Datasets (TFDS), read at random access and without TensorFlow."""

import contextlib
import difflib
import io
import logging
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ctt.config.dataset import KNOWN_DATASETS
from ctt.config.error import InputError, suggest
from ctt.config.schema import DataConfig
from ctt.data.dataset import OfficialData, Split
from ctt.data.download import download
from ctt.data.fingerprint import compute_fingerprint
from ctt.data.holdout import check_val_size
from ctt.data.image import decode_image, guard_decoding
from ctt.data.requirement import require_num_classes, require_resolved

_CHUNK = 500
_NAME_PATTERN = re.compile(r"\w+(/[\w.\-]+)?(:[\w.*]+)?")


def read_prepared(config: DataConfig, progress: Callable[[int, int], None] | None = None) -> OfficialData:
    """Read the training and test split of a prepared TFDS set, downloading it first if need be.

    A set without a `test` split has its `validation` split take that part. Pictures are decoded by
    Pillow, whatever else is installed, so that pixels do not depend on the installation. The
    examples keep the order in which TFDS stores them.

    Args:
        config: resolved data configuration.
        progress: called with the number of images decoded so far and in all, now and then.

    Returns:
        The two splits at `data.image_shape`.

    Raises:
        InputError: the set is unknown, neither prepared nor downloadable, damaged, in a format
            that needs TensorFlow, not for image classification, or does not fit the config.
    """
    with _silence():
        builder = _find_builder(config)
        if not builder.is_prepared():
            download(builder, name=config.name)
        train_name, test_name = _find_split_names(builder.info, config.name)
        class_names = _find_class_names(builder.info, config)
        val_size = require_resolved(config.val_size, "data.val_size")
        check_val_size(val_size, num_examples=builder.info.splits[train_name].num_examples)
        train, test = _read_splits(builder, config, names=(train_name, test_name), progress=progress)
    return OfficialData(train, test, class_names, compute_fingerprint([train, test]))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep TFDS's log and what it prints off the terminal; its progress bars stay."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def _find_builder(config: DataConfig) -> Any:
    """Return the TFDS builder of the set, of whichever version is prepared if one is."""
    import tensorflow_datasets as tfds

    name, folder = config.name, config.dir and os.path.expanduser(config.dir)
    if folder and not os.path.isdir(folder):
        raise InputError(
            f"`data.dir` must be an existing folder of prepared TFDS data sets, got {folder!r}. Check --data.dir."
        )
    if not _NAME_PATTERN.fullmatch(name):
        raise _refuse_name(name)
    try:
        builder = tfds.builder(name, data_dir=folder)
        if not builder.is_prepared() and ":" not in name:
            # The version that this TFDS would write is absent; another one may have been prepared.
            builder = tfds.builder(name, data_dir=folder, version="*.*.*")
    except tfds.core.DatasetNotFoundError as error:
        raise _refuse_name(name) from error
    except Exception as error:  # Metadata are parsed here, and configs and versions looked up.
        if "/" in name or ":" in name:
            raise _refuse_variant(name, error) from error
        raise _report_damage(config, error, place=folder or "TFDS's default folder") from error
    return builder


def _refuse_name(name: str) -> InputError:
    """Return the error for a name that no data set has."""
    import tensorflow_datasets as tfds

    names = list(KNOWN_DATASETS)
    if not difflib.get_close_matches(name, names, cutoff=0.75):
        offered = tfds.list_builders(with_community_datasets=False)
        names += [near for near in difflib.get_close_matches(name, offered) if near not in names]
    return InputError(
        f"`data.name` must be digits or an image classification set of TFDS, got {name!r}: "
        f"{suggest(name, names)}, and others of "
        "https://www.tensorflow.org/datasets/catalog. Set it in the config file or pass --data.name."
    )


def _refuse_variant(name: str, error: Exception) -> InputError:
    """Return the error for a config or version that the set does not have."""
    return InputError(
        "`data.name` must be the name of a set, alone or with an existing config and version (set/config:1.0.0), "
        f"got {name!r} ({_join_lines(error)}). Set it in the config file or pass --data.name."
    )


def _join_lines(error: Exception) -> str:
    """Return the start of an error's message on one line, or its type if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _report_damage(config: DataConfig, error: Exception, *, place: str) -> InputError:
    """Return the error for prepared data that cannot be read."""
    return InputError(
        f"`data.name` must be a data set whose prepared files are whole, got {config.name!r} in {place} "
        f"({_join_lines(error)}). Delete that folder and prepare or copy the set again."
    )


def _find_split_names(info: Any, name: str) -> tuple[str, str]:
    """Return the names of the splits to train and to test on."""
    found = list(info.splits)
    test_name = next((split for split in ("test", "validation") if split in found), None)
    if "train" not in found or test_name is None:
        raise InputError(
            f"`data.name` must be a set with the splits train and test (or validation), got {name!r} with "
            f"{', '.join(found) or 'none'}. Choose another set with --data.name."
        )
    return "train", test_name


def _find_class_names(info: Any, config: DataConfig) -> tuple[str, ...]:
    """Return the names of the classes, after checking that the set is one of labelled images."""
    import tensorflow_datasets as tfds

    features: dict[str, Any] = {}
    if isinstance(info.features, tfds.features.FeaturesDict):
        features = dict(info.features.items())
    image, label = features.get("image"), features.get("label")
    if not (
        isinstance(image, tfds.features.Image)
        and image.np_dtype == np.uint8
        and isinstance(label, tfds.features.ClassLabel)
    ):
        raise InputError(
            "`data.name` must be a set with an `image` of 8-bit pixels and a class `label`, got "
            f"{config.name!r} with {', '.join(sorted(features)) or 'no features'}. Choose another set with --data.name."
        )
    num_classes = label.num_classes or 0
    require_num_classes(config.num_classes, found=num_classes, name=config.name)
    return tuple(label.int2str(index) for index in range(num_classes))


def _read_splits(
    builder: Any, config: DataConfig, *, names: tuple[str, str], progress: Callable[[int, int], None] | None
) -> tuple[Split, Split]:
    """Decode both splits, reporting progress over the two together."""
    sources = [_open_split(builder, config, split=name) for name in names]
    total = sum(len(source) for source in sources)
    done = 0

    def count(decoded: int) -> None:
        nonlocal done
        done += decoded
        if progress is not None:
            progress(done, total)

    train, test = (_decode_split(source, builder, config=config, count=count) for source in sources)
    return train, test


def _open_split(builder: Any, config: DataConfig, *, split: str) -> Any:
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
        raise _report_damage(config, error, place=os.fspath(builder.data_path)) from error


def _decode_split(source: Any, builder: Any, *, config: DataConfig, count: Callable[[int], None]) -> Split:
    """Decode one split in chunks; damage of any kind becomes one clear error."""
    import tensorflow_datasets as tfds

    image_shape = require_resolved(config.image_shape, "data.image_shape")
    features: Any = tfds.features.FeaturesDict({name: builder.info.features[name] for name in ("image", "label")})
    encoded = {"image": tfds.decode.SkipDecoding()}
    images = np.empty((len(source), *image_shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for start in range(0, len(source), _CHUNK):
        indices = range(start, min(start + _CHUNK, len(source)))
        try:
            with guard_decoding():
                for index, record in zip(indices, source.__getitems__(list(indices)), strict=True):
                    example = features.deserialize_example_np(record, decoders=encoded)
                    images[index] = decode_image(io.BytesIO(example["image"]), image_shape, is_upright=True)
                    labels[index] = example["label"]
        except Exception as error:  # From the C++ reader, protobuf or Pillow, each with its own types.
            raise _report_damage(config, error, place=os.fspath(builder.data_path)) from error
        count(len(indices))
    if labels.size and not (labels.min() >= 0 and labels.max() < builder.info.features["label"].num_classes):
        raise InputError(
            f"`data.name` must be a set whose train and test images are all labelled, got {config.name!r} with images "
            "without a label. Choose another set with --data.name."
        )
    return Split(images, labels)
