"""The cache of decoded images on disk: written beside and renamed whole, verified when it is read.

A set lies in ``<cache folder>/data/<key>/``: `train_images.npy`, `train_labels.npy`, `test_images.npy`,
`test_labels.npy`, and `cache.json` with what the key is made of, the sizes of the files and the fingerprint of their
content. The key depends on all that decides the pixels, so a changed source has another one.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ctt.data.dataset import OfficialData, Split
from ctt.data.fingerprint import compute_fingerprint
from ctt.data.mapped import MappedImages

FORMAT = 1
"""Version of the files' layout; another one is decoded anew."""

_SPLITS = ("train", "test")
_ABANDONED_SECONDS = 3600.0
_TAIL_BYTES = 2**16


class DamagedCacheError(Exception):
    """A folder of the cache does not hold what it should; the message says why."""


class SplitSource(Protocol):
    """A split that can be decoded piece by piece."""

    image_shape: tuple[int, int, int]

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def chunks(self, count: Callable[[int], None]) -> Iterator[Split]:
        """Yield all examples in order, and count them.

        Args:
            count: called with the number of examples of each piece.
        """
        ...


def describe_files(folder: str | os.PathLike[str]) -> list[list[Any]]:
    """Return what tells the files of a prepared set from changed ones, without reading them whole.

    Args:
        folder: the set's own folder.

    Returns:
        Name, size [bytes], time of change [ns] and sha256 of the last 64 KiB (where array_record keeps its index) of
        each file, sorted by name.

    Raises:
        OSError: the folder or a file cannot be read.
    """
    described = []
    for path in sorted(Path(folder).iterdir()):
        if path.is_file():
            stat = path.stat()
            with open(path, "rb") as file:
                file.seek(max(0, stat.st_size - _TAIL_BYTES))
                tail = hashlib.sha256(file.read(_TAIL_BYTES)).hexdigest()
            described.append([path.name, stat.st_size, stat.st_mtime_ns, tail])
    return described


def find_folder(root: Path, parts: Mapping[str, Any]) -> Path:
    """Return the folder of one decoded set.

    Args:
        root: the folder of all decoded sets.
        parts: all that decides the pixels, as JSON can hold it; `name` begins the folder's name.
    """
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
    return root / f"{parts['name']}-{key}"


def load_decoded(folder: Path, parts: Mapping[str, Any]) -> OfficialData | None:
    """Return a decoded set, its images in their file, or None where there is none.

    Args:
        folder: the set's folder, see `find_folder`.
        parts: what the folder's name was made of.

    Returns:
        The set, after its content was read once and found to have its fingerprint.

    Raises:
        DamagedCacheError: something is missing, cut short or changed.
    """
    if not os.path.lexists(folder):
        return None
    try:
        record = json.loads((folder / "cache.json").read_text())
        if record["format"] != FORMAT:
            raise DamagedCacheError(f"its format is {record['format']}, not {FORMAT}")
        if record["parts"] != json.loads(json.dumps(parts)):
            raise DamagedCacheError("cache.json describes another set")
        for name, size in record["files"].items():
            if (found := (folder / name).stat().st_size) != size:
                raise DamagedCacheError(f"{name} has {found} bytes, not {size}")
        splits = [_open_split(folder, name, tuple(record["shapes"][name])) for name in _SPLITS]
        if compute_fingerprint(splits) != record["fingerprint"]:
            raise DamagedCacheError("the content has another fingerprint")
        return OfficialData(splits[0], splits[1], tuple(parts["class_names"]), record["fingerprint"])
    except FileNotFoundError as error:
        raise DamagedCacheError(f"{Path(error.filename or 'a file').name} is missing") from error
    except OSError as error:
        raise DamagedCacheError(error.strerror or str(error)) from error
    except DamagedCacheError:
        raise
    except Exception as error:  # From JSON, NumPy's headers or zipfile, to which a damaged header may look like a zip.
        raise DamagedCacheError(f"a file cannot be read: {error}") from error


def write_decoded(
    folder: Path, parts: Mapping[str, Any], sources: Mapping[str, SplitSource], count: Callable[[int], None]
) -> OfficialData:
    """Decode a set into the cache, and return it from there.

    Everything is written into a folder beside, which gets its name when it is complete: a kill leaves no half set, and
    of several processes the first wins. What an abandoned one left is removed.

    Args:
        folder: the set's folder; a damaged one is replaced.
        parts: what the folder's name was made of.
        sources: the splits `train` and `test`.
        count: called with the number of examples decoded, now and then.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    sizes = [len(source) * int(np.prod(source.image_shape)) for source in sources.values()]
    if shutil.disk_usage(folder.parent).free < sum(sizes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    scratch = _scratch_beside(folder)
    scratch.mkdir()
    try:
        for name in _SPLITS:
            _write_split(scratch, name, sources[name], count)
        shapes = {name: [len(source), *source.image_shape] for name, source in sources.items()}
        splits = [_open_split(scratch, name, tuple(shapes[name])) for name in _SPLITS]
        record = {
            "format": FORMAT,
            "parts": parts,
            "shapes": shapes,
            "files": {path.name: path.stat().st_size for path in sorted(scratch.iterdir())},
            "fingerprint": compute_fingerprint(splits),
        }
        with _synced(scratch / "cache.json") as file:
            file.write(json.dumps(record, indent=1).encode())
        _publish(scratch, folder, parts)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    data = load_decoded(folder, parts)
    if data is None:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    return data


@contextlib.contextmanager
def _synced(path: Path) -> Iterator[Any]:
    """Open a new file for writing, whose bytes are on the disk when it is closed."""
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write_split(folder: Path, name: str, source: SplitSource, count: Callable[[int], None]) -> None:
    """Write the images and labels of one split, of which never more than a piece is in memory."""
    labels = [np.empty(0, np.int32)]
    with _synced(folder / f"{name}_images.npy") as file:
        # By calls of write and not through a memory map, where a full disk would kill the process.
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(source), *source.image_shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in source.chunks(count):
            file.write(np.ascontiguousarray(chunk.images).data)
            labels.append(chunk.labels)
    with _synced(folder / f"{name}_labels.npy") as file:
        np.save(file, np.concatenate(labels))


def _open_split(folder: Path, name: str, shape: tuple[int, ...]) -> Split:
    """Map the images of a split and read its labels."""
    images = np.load(folder / f"{name}_images.npy", mmap_mode="r", allow_pickle=False)
    labels = np.load(folder / f"{name}_labels.npy", allow_pickle=False)
    if (images.dtype, images.shape) != (np.uint8, shape) or (labels.dtype, labels.shape) != (np.int32, shape[:1]):
        raise DamagedCacheError(f"the arrays of {name} have another type or shape")
    return Split(MappedImages(images), labels)


def _scratch_beside(folder: Path) -> Path:
    """Return a name beside the folder that no process has."""
    return folder.parent / f".{folder.name}.{uuid.uuid4().hex}"


def _publish(scratch: Path, folder: Path, parts: Mapping[str, Any]) -> None:
    """Give a complete folder its name, unless another process was first; a damaged one makes way."""
    for _ in range(8):
        try:
            os.rename(scratch, folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        try:
            if load_decoded(folder, parts) is not None:
                return
        except DamagedCacheError:
            aside = _scratch_beside(folder)
            with contextlib.suppress(FileNotFoundError):  # Another process was first at this, too.
                os.rename(folder, aside)
            shutil.rmtree(aside, ignore_errors=True) if aside.is_dir() else aside.unlink(missing_ok=True)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _remove_abandoned(root: Path) -> None:
    """Remove what killed processes left: hidden folders in which nothing was written for an hour."""
    for path in root.glob(".*"):
        with contextlib.suppress(OSError):
            newest = max(entry.stat().st_mtime for entry in (path, *path.iterdir()))
            if time.time() - newest > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
