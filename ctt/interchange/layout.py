"""The correspondence of parameters as data: their tensors, ours, and an invertible transform between them.

Read forwards it imports, read backwards it exports; nothing but axes are moved, so both are exact.
"""

import abc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ctt.config.error import InputError

Path: TypeAlias = tuple[Any, ...]
"""Where a parameter stands in the state of a model, such as ``("read_out", "kernel")``."""


class Transform(abc.ABC):
    """How one tensor of theirs holds one or more parameters of ours."""

    @abc.abstractmethod
    def to_ours(self, tensor: np.ndarray) -> list[np.ndarray]:
        """Return our parameters."""

    @abc.abstractmethod
    def to_theirs(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """Return their tensor, the inverse."""


@dataclass(frozen=True)
class Axes(Transform):
    """A permutation of axes, with axes of length 1 before it on their side: ``theirs[0, ..., 0].transpose(axes)``.

    Attributes:
        axes: the permutation; None: none.
        leading: how many axes of length 1 theirs begins with.
    """

    axes: tuple[int, ...] | None = None
    leading: int = 0

    def to_ours(self, tensor: np.ndarray) -> list[np.ndarray]:
        """Return our parameter."""
        inner = tensor.reshape(tensor.shape[self.leading :])
        return [inner if self.axes is None else inner.transpose(self.axes)]

    def to_theirs(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """Return their tensor."""
        (value,) = parameters
        inner = value if self.axes is None else value.transpose(tuple(np.argsort(self.axes)))
        return inner.reshape((1,) * self.leading + inner.shape)


@dataclass(frozen=True)
class Patches(Transform):
    """A convolution `[width, channels, p, p]` with stride p is a linear map of patches flattened row by row.

    Attributes:
        side: side p of a patch.
    """

    side: int

    def to_ours(self, tensor: np.ndarray) -> list[np.ndarray]:
        """Return `[p * p * channels, width]`."""
        return [tensor.transpose(2, 3, 1, 0).reshape(-1, tensor.shape[0])]

    def to_theirs(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """Return `[width, channels, p, p]`."""
        (value,) = parameters
        return value.reshape(self.side, self.side, -1, value.shape[-1]).transpose(3, 2, 0, 1)


@dataclass(frozen=True)
class Depthwise(Transform):
    """A depthwise kernel, `[width, 1, rows, columns]` on their side and `[rows, columns, width]` on ours."""

    def to_ours(self, tensor: np.ndarray) -> list[np.ndarray]:
        """Return `[rows, columns, width]`."""
        return [tensor[:, 0].transpose(1, 2, 0)]

    def to_theirs(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """Return `[width, 1, rows, columns]`."""
        (value,) = parameters
        return value.transpose(2, 0, 1)[:, None]


@dataclass(frozen=True)
class Fused(Transform):
    """Several tensors of one shape, one after the other along their first axis.

    Attributes:
        parts: how many.
        each: the transform of each.
    """

    parts: int
    each: Transform

    def to_ours(self, tensor: np.ndarray) -> list[np.ndarray]:
        """Return our parameters, one a part."""
        return [value for part in np.split(tensor, self.parts) for value in self.each.to_ours(part)]

    def to_theirs(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """Return the parts joined."""
        return np.concatenate([self.each.to_theirs([value]) for value in parameters])


SAME = Axes()
LINEAR = Axes((1, 0))
"""PyTorch keeps a linear map as `[out, in]`, we as `[in, out]`."""
CONVOLUTION = Axes((2, 3, 1, 0))
"""`[out, in, rows, columns]` and `[rows, columns, in, out]`."""


@dataclass(frozen=True)
class Entry:
    """One tensor of theirs.

    Attributes:
        theirs: its name.
        ours: the parameters that it holds.
        transform: how.
        depth: the index along axis 0 of our stacked parameters; None: they are not stacked.
    """

    theirs: str
    ours: tuple[Path, ...]
    transform: Transform = SAME
    depth: int | None = None


def linear(theirs: str, ours: tuple[Path, ...], *, depth: int | None = None, has_bias: bool = True) -> list[Entry]:
    """Return the entries of a linear map, or of several that are one tensor of theirs.

    Args:
        theirs: its name, without ``.weight``.
        ours: the places of our maps.
        depth: see `Entry`.
        has_bias: whether it has a bias.
    """
    kernel = LINEAR if len(ours) == 1 else Fused(len(ours), LINEAR)
    bias = Axes() if len(ours) == 1 else Fused(len(ours), Axes())
    entries = [Entry(f"{theirs}.weight", tuple((*place, "kernel") for place in ours), kernel, depth)]
    if has_bias:
        entries.append(Entry(f"{theirs}.bias", tuple((*place, "bias") for place in ours), bias, depth))
    return entries


def norm(theirs: str, ours: Path, *, depth: int | None = None) -> list[Entry]:
    """Return the entries of a layer normalisation with an elementwise affine map.

    Args:
        theirs: its name, without ``.weight``.
        ours: the place of ours.
        depth: see `Entry`.
    """
    return [
        Entry(f"{theirs}.weight", ((*ours, "scale"),), depth=depth),
        Entry(f"{theirs}.bias", ((*ours, "bias"),), depth=depth),
    ]


def to_state(
    layout: Iterable[Entry],
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[Path, tuple[int, ...]],
    *,
    ignored: Iterable[str] = (),
) -> dict[Path, np.ndarray]:
    """Return our parameters from their tensors.

    Args:
        layout: the correspondence.
        tensors: their tensors by name.
        shapes: the shape of each of our parameters.
        ignored: names of tensors that are known to be of no use.

    Raises:
        InputError: tensors are missing, superfluous, of another shape, or hold integers; the first few are named.
    """
    entries = {entry.theirs: entry for entry in layout}
    _check_cover(entries.values(), shapes)
    missing = sorted(set(entries) - set(tensors))
    extra = sorted(set(tensors) - set(entries) - set(ignored))
    if missing or extra:
        kinds = [f"{kind} {_some(names)}" for kind, names in (("lacks", missing), ("has the unknown", extra)) if names]
        raise InputError(
            f"The file must hold the tensors of this architecture and no other, but {' and '.join(kinds)}. "
            "Give the weights of the plain model, with its config.json beside them."
        )
    wrong = []
    for name, entry in entries.items():
        tensor, expected = tensors[name], _their_shape(entry, shapes)
        if tensor.shape != expected or not np.issubdtype(tensor.dtype, np.floating):
            kind = "" if np.issubdtype(tensor.dtype, np.floating) else f" of {tensor.dtype}"
            wrong.append(f"{name} {list(tensor.shape)}{kind} instead of {list(expected)}")
    if wrong:
        raise InputError(
            f"The file must hold tensors of the shapes of its architecture, but has {_some(wrong)}. Check its "
            "config.json, or give the number of heads and the image size if it has none."
        )
    values = {path: np.zeros(shape, _common_type(tensors)) for path, shape in shapes.items()}
    for name, entry in entries.items():
        for path, part in zip(entry.ours, entry.transform.to_ours(tensors[name]), strict=True):
            values[path][... if entry.depth is None else entry.depth] = part
    return values


def to_tensors(layout: Iterable[Entry], values: Mapping[Path, np.ndarray]) -> dict[str, np.ndarray]:
    """Return their tensors from our parameters, the inverse of `to_state`.

    Args:
        layout: the correspondence.
        values: our parameters.
    """
    tensors = {}
    for entry in layout:
        parts = [values[path] if entry.depth is None else values[path][entry.depth] for path in entry.ours]
        tensors[entry.theirs] = np.ascontiguousarray(entry.transform.to_theirs(parts))
    return tensors


def _inner(entry: Entry, shapes: Mapping[Path, tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [shapes[path] if entry.depth is None else shapes[path][1:] for path in entry.ours]


def _check_cover(entries: Iterable[Entry], shapes: Mapping[Path, tuple[int, ...]]) -> None:
    """Check that a layout fills each of our parameters, every slice once: none stays at zero unseen."""
    filled = Counter((path, entry.depth) for entry in entries for path in entry.ours)
    is_stacked = {path: depth is not None for path, depth in filled}
    wanted = {
        (path, depth)
        for path, shape in shapes.items()
        for depth in (range(shape[0]) if is_stacked.get(path) else (None,))
    }
    assert filled == Counter(wanted)


def _their_shape(entry: Entry, shapes: Mapping[Path, tuple[int, ...]]) -> tuple[int, ...]:
    inner = _inner(entry, shapes)
    try:
        return entry.transform.to_theirs([np.broadcast_to(np.float32(0), shape) for shape in inner]).shape
    except ValueError:  # A config may state sizes that no array has; they differ from those of the file too.
        return inner[0]


def _common_type(tensors: Mapping[str, Any]) -> np.dtype:
    """Return float64 if anything is, else float32: half precision is widened, which is exact."""
    is_wide = any(tensor.dtype == np.float64 for tensor in tensors.values())
    return np.dtype(np.float64 if is_wide else np.float32)


def _some(names: Sequence[str], count: int = 4) -> str:
    shown = ", ".join(names[:count])
    return shown if len(names) <= count else f"{shown} and {len(names) - count} more"
