"""Data sets of TensorFlow Datasets (TFDS), read at random access and without TensorFlow."""

import contextlib
import difflib
import io
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import PIL
import PIL.features

from ctt.config.cache import cache_folder
from ctt.config.dataset import KNOWN_DATASETS
from ctt.config.error import InputError, suggest
from ctt.config.schema import DataConfig
from ctt.data.cache import DamagedCacheError, describe_files, find_folder, load_decoded, write_decoded
from ctt.data.dataset import OfficialData, Split
from ctt.data.decode import DECODING_VERSION, EncodedSplit, join_lines, report_damage
from ctt.data.download import download
from ctt.data.fingerprint import compute_fingerprint
from ctt.data.holdout import check_val_size
from ctt.data.requirement import require_num_classes, require_resolved

_LOGGER = logging.getLogger(__name__)
_NAME_PATTERN = re.compile(r"\w+(/[\w.\-]+)?(:[\w.*]+)?")


def read_prepared(
    config: DataConfig,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> OfficialData:
    """Read the training and test split of a prepared TFDS set, downloading it first if need be.

    A set without a `test` split has its `validation` split take that part. Pictures are decoded by
    Pillow, whatever else is installed, so that pixels do not depend on the installation. The
    examples keep the order in which TFDS stores them.

    With `data.cache` the images are decoded once into a file (`ctt.data.cache`) and stay there;
    without it, or where it cannot be written, they are decoded into memory.

    Args:
        config: resolved data configuration.
        progress: called with the number of images decoded so far and in all, now and then.
        say: called with a line where the cache is damaged or cannot be written; None: it is logged.

    Returns:
        The two splits at `data.image_shape`.

    Raises:
        InputError: the set is unknown, neither prepared nor downloadable, damaged, in a format
            that needs TensorFlow, not for image classification, or does not fit the config.
    """
    say = say or _LOGGER.warning
    with _silence():
        builder = _find_builder(config)
        if not builder.is_prepared():
            download(builder, name=config.name)
        names = _find_split_names(builder.info, config.name)
        class_names = _find_class_names(builder.info, config)
        val_size = require_resolved(config.val_size, "data.val_size")
        check_val_size(val_size, num_examples=builder.info.splits[names[0]].num_examples)
        train, test = (EncodedSplit(builder, config, split=name) for name in names)
    sources = {"train": train, "test": test}
    counter = _Counter(len(train) + len(test), progress)
    if config.cache:
        try:
            parts = _describe(builder, sources, class_names)
            folder = find_folder(cache_folder() / "data", parts)
            try:
                cached = load_decoded(folder, parts)
            except DamagedCacheError as error:
                cached = None
                say(f"The decoded images in {folder} are damaged ({error}): they are decoded again.")
            return cached or write_decoded(folder, parts, sources, counter)
        except (OSError, RuntimeError, DamagedCacheError) as error:  # RuntimeError: there is no home folder.
            reason = (isinstance(error, OSError) and error.strerror) or join_lines(error)
            say(
                f"The decoded images cannot be kept on disk ({reason}), so each run decodes them: set CTT_CACHE_DIR to "
                "a folder that is writable and has space, or pass --data.no-cache."
            )
            counter.done = 0
    splits = [_decode_into_memory(source, counter) for source in (train, test)]
    return OfficialData(splits[0], splits[1], class_names, compute_fingerprint(splits))


class _Counter:
    """Reports progress over both splits together."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None):
        self.done, self._total, self._progress = 0, total, progress

    def __call__(self, decoded: int) -> None:
        self.done += decoded
        if self._progress is not None:
            self._progress(self.done, self._total)


def _describe(builder: Any, sources: Mapping[str, EncodedSplit], class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return all that decides the decoded pixels."""
    return {
        "name": builder.info.name,
        "full_name": builder.info.full_name,
        "files": describe_files(builder.data_path),
        "splits": {name: [source.split, len(source), *source.image_shape] for name, source in sources.items()},
        "class_names": list(class_names),
        "decoding": DECODING_VERSION,
        "pillow": [PIL.__version__, PIL.features.version("jpg")],
    }


def _decode_into_memory(source: EncodedSplit, count: Callable[[int], None]) -> Split:
    """Decode one split into arrays in memory."""
    images = np.empty((len(source), *source.image_shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    start = 0
    for chunk in source.chunks(count):
        images[start : start + len(chunk)], labels[start : start + len(chunk)] = chunk.images, chunk.labels
        start += len(chunk)
    return Split(images, labels)


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
        raise report_damage(config, error, place=folder or "TFDS's default folder") from error
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
        f"got {name!r} ({join_lines(error)}). Set it in the config file or pass --data.name."
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
