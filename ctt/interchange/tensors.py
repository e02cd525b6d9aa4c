"""Files of weights, read without running anything that is in them."""

import hashlib
import importlib
import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ctt.config.error import InputError

_NAMES = ("model.safetensors", "pytorch_model.bin")
_TORCH = (".bin", ".pt", ".pth", ".ckpt")
_WRAPPERS = ("state_dict", "model", "model_state", "module")
_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
}
"""Types of a safetensors file; those that only quantised weights have are left out."""


@dataclass(frozen=True)
class WeightsFile:
    """The tensors of a file, and what lies beside it.

    Attributes:
        name: base name of the file, or the id of a model on the Hub.
        sha256: of the bytes of the file, or of all its shards.
        tensors: by name.
        config: its `config.json`, empty where there is none.
        preprocessor: its `preprocessor_config.json`, empty where there is none.
    """

    name: str
    sha256: str
    tensors: Mapping[str, np.ndarray]
    config: Mapping[str, Any]
    preprocessor: Mapping[str, Any]


def read_weights(source: str | Path) -> WeightsFile:
    """Read a safetensors or PyTorch file, a folder of the Hugging Face form, or a model of the Hub.

    Args:
        source: a path, or an id such as ``google/vit-base-patch16-224``; a path that exists is taken as one.

    Raises:
        InputError: there is nothing of that name, it is no file of weights, damaged, or would run code.
    """
    try:
        path, name = Path(source), os.path.basename(os.path.abspath(source))
        if not path.exists():
            path, name = _download(str(source)), str(source)
        files = _find_shards(path) if path.is_dir() else [path]
        tensors: dict[str, np.ndarray] = {}
        for file in files:
            tensors |= _read_file(file)
        if not tensors:
            raise InputError(f"`{source}` must hold tensors, got none. Give a file of weights.")
        folder = path if path.is_dir() else path.parent
        return WeightsFile(
            name=name,
            sha256=_sha256(files),
            tensors=tensors,
            config=_read_json(folder / "config.json"),
            preprocessor=_read_json(folder / "preprocessor_config.json"),
        )
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"`{source}` cannot be read ({reason}). Check the path and its permissions.") from error


def _download(source: str) -> Path:
    is_id = source.count("/") == 1 and not source.startswith((".", "/", "~")) and not source.endswith("/")
    if not is_id or source.endswith((".safetensors", *_TORCH)):
        raise InputError(f"The file of weights `{source}` does not exist. Check the path.")
    try:
        hub: Any = importlib.import_module("huggingface_hub")  # Optional.
    except ImportError as error:
        raise InputError(
            f"`{source}` is no file here, and to look for it on the Hub needs the package huggingface_hub. Check the "
            "path, or install it: pip install 'ctt-jax[hub]'."
        ) from error
    try:
        patterns = ["config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json", _NAMES[1]]
        return Path(hub.snapshot_download(source, allow_patterns=patterns))
    except Exception as error:  # Of the hub, of the network, of the file system.
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise InputError(
            f"`{source}` is no file here and could not be had from the Hub ({type(error).__name__}: {reason}). Check "
            "the name, or download the file and give its path."
        ) from error


def _find_shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = _read_json(index).get("weight_map")
        names = sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else []
        if any(Path(name).name != name for name in names):
            raise InputError(f"`{index}` must name files of its own folder. Give the files that belong to it.")
        missing = [name for name in names if not (folder / name).is_file()]
        if missing or not names:
            raise InputError(f"`{folder}` lacks {', '.join(missing) or 'shards'} of its index. Copy all of its files.")
        return [folder / name for name in names]
    for name in _NAMES:
        if (folder / name).is_file():
            return [folder / name]
    raise InputError(f"`{folder}` must hold one of {', '.join(_NAMES)}. Give a file of weights, or a folder with one.")


def _read_file(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise InputError(f"`{path}` must be a file of weights, got something else. Check the path.")
    is_torch = path.suffix in _TORCH or (path.suffix != ".safetensors" and _looks_like_torch(path))
    tensors = _read_torch(path) if is_torch else _read_safetensors(path)
    for name, tensor in tensors.items():
        if not (np.issubdtype(tensor.dtype, np.floating) or np.issubdtype(tensor.dtype, np.integer)):
            raise InputError(_quantised(path, name, tensor.dtype))
    return tensors


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, deserialize

    try:
        views = dict(deserialize(path.read_bytes()))
    except (SafetensorError, ValueError) as error:
        raise InputError(
            f"`{path}` must be a whole safetensors file ({_first_line(error)}). Download it again, or give a PyTorch "
            "file with the suffix .bin, .pt or .pth."
        ) from error
    tensors = {}
    for name, view in views.items():
        if view["dtype"] not in _TYPES:
            raise InputError(_quantised(path, name, view["dtype"]))
        dtype = np.dtype(_TYPES[view["dtype"]])
        tensors[name] = _widen(np.frombuffer(bytearray(view["data"]), dtype).reshape(view["shape"]))
    return tensors


def _read_torch(path: Path) -> dict[str, np.ndarray]:
    try:
        torch: Any = importlib.import_module("torch")  # Optional.
    except ImportError as error:
        raise InputError(
            f"To read the PyTorch file `{path}` needs torch. Install it (pip install 'ctt-jax[parity]'), or convert "
            "the file to safetensors."
        ) from error
    try:
        with warnings.catch_warnings(action="ignore"):  # Of pickles that are about to be refused.
            # Weights alone: a pickle that asks for anything else is refused before it runs.
            values = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if _looks_like_torch(path):
            raise InputError(
                f"`{path}` must hold weights alone, but its pickle would run code or make other objects. Take the "
                "state_dict out of it where you trust it, and save that."
            ) from error
        raise InputError(f"`{path}` must be a PyTorch file, got something else. Check the path.") from error
    except Exception as error:  # A damaged archive raises whatever its reader meets first.
        raise InputError(f"`{path}` must be a whole PyTorch file ({_first_line(error)}). Download it again.") from error
    for wrapper in _WRAPPERS:
        if isinstance(values, dict) and isinstance(values.get(wrapper), dict):
            values = values[wrapper]
    if not isinstance(values, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in values.items()
    ):
        raise InputError(f"`{path}` must hold a dictionary of tensors. Save the state_dict of the model.")
    return {name.removeprefix("module."): _from_torch(path, name, value) for name, value in values.items()}


def _from_torch(path: Path, name: str, value: Any) -> np.ndarray:
    value = value.detach()
    try:
        return (value.float() if value.dtype.itemsize == 2 and value.is_floating_point() else value).numpy()
    except (TypeError, RuntimeError) as error:  # Sparse, quantised, or of a type that numpy has not.
        raise InputError(_quantised(path, name, f"{value.layout} {value.dtype}")) from error


def _quantised(path: Path, name: str, dtype: object) -> str:
    return f"`{path}` must hold dense numbers, but {name} is of type {dtype}. Give unquantised weights."


def _widen(value: np.ndarray) -> np.ndarray:
    is_half = value.dtype.itemsize == 2 and not np.issubdtype(value.dtype, np.integer)
    return value.astype(np.float32) if is_half else value


def _looks_like_torch(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(1) == b"\x80" or zipfile.is_zipfile(path)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` must be JSON ({error}). Mend it, or move it away.") from error
    if not isinstance(values, dict):
        raise InputError(f"`{path}` must hold a JSON object. Mend it, or move it away.")
    return values


def _sha256(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
