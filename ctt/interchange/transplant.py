"""The weights of one model in another of its kind: another image size, other classes, another discretisation."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.config.serialize import flatten_config
from ctt.config.stage import stage_grids
from ctt.interchange.layout import Path
from ctt.interchange.positions import interpolate_positions
from ctt.models.build import build_model
from ctt.models.classifier import Classifier

_WEIGHTS = (nnx.Param, nnx.BatchStat)
_POSITIONS: Path = ("lift", "positions")
_READERS = ("model.", "normalization.", "data.mean", "data.std")
"""Fields, by their beginning, that decide what a weight does where its shape does not show it."""
_WITHOUT_WEIGHTS = ("model.dropout", "model.stochastic_depth", "model.dtype")


def transplant(source: Config, model: Classifier, target: Config) -> tuple[Classifier, list[str]]:
    """Return a model of a config with the weights of another model.

    Position embeddings are interpolated where the mesh of patches differs, and the read-out keeps its initial
    weights, drawn from the target's seed, where the number of classes differs. All else must agree.

    Args:
        source: resolved config of `model`.
        model: a model with its weights.
        target: resolved config of the result.

    Returns:
        The model, and sentences that say what was not simply copied.

    Raises:
        InputError: a parameter has no counterpart of its shape, or the same weights would be read otherwise.
    """
    given = dict(nnx.to_flat_state(nnx.state(model, _WEIGHTS)))
    graphdef, abstract, rest = nnx.split(nnx.eval_shape(lambda: build_model(target)), _WEIGHTS, ...)
    wanted = dict(nnx.to_flat_state(abstract))
    has_other_classes = source.data.num_classes != target.data.num_classes
    grids = stage_grids(source), stage_grids(target)
    notes, drawn = [], [path for path in wanted if has_other_classes and path[0] == "read_out"]
    if has_other_classes:
        notes.append(
            f"The read-out was drawn anew for {target.data.num_classes} classes in place of {source.data.num_classes}."
        )
    if _POSITIONS in given and _POSITIONS in wanted and grids[0] != grids[1]:
        (grid,), (new_grid,) = grids
        num_prefix = int(source.model.pooling == "cls")
        if given[_POSITIONS][...].shape[0] == num_prefix + math.prod(grid):
            given[_POSITIONS] = interpolate_positions(
                given[_POSITIONS][...], grid, new_grid, num_prefix_tokens=num_prefix
            )
            notes.append(f"Position embeddings were interpolated from {_by(grid)} to {_by(new_grid)} patches.")
    _check_shapes(given, wanted, drawn)
    notes += _compare(source, target)
    if drawn or jax.tree.leaves(rest):  # Else nothing of the initial values is kept, and none is computed.
        graphdef, fresh, rest = nnx.split(build_model(target), _WEIGHTS, ...)
        wanted = dict(nnx.to_flat_state(fresh))
    filled = [
        (path, leaf if path in drawn else leaf.replace(jnp.asarray(given[path][...], leaf.dtype)))
        for path, leaf in wanted.items()
    ]
    return nnx.merge(graphdef, nnx.from_flat_state(filled), rest), notes


def _check_shapes(given: Mapping[Path, Any], wanted: Mapping[Path, Any], drawn: Collection[Path]) -> None:
    unmatched = sorted(set(given) ^ set(wanted), key=str)
    if unmatched:
        where = "the run has and the config has not" if unmatched[0] in given else "the config has and the run has not"
        raise InputError(
            f"The models must have the same parameters, but {name_path(unmatched[0])} is one that {where}. Choose a "
            "config with the same model, normalization, controls.knots and an ordinary scheme, such as lie or strang."
        )
    for path, leaf in wanted.items():
        if path not in drawn and given[path].shape != leaf.shape:
            raise InputError(
                f"The models must agree in {name_path(path)}, which is {list(given[path].shape)} in the run and "
                f"{list(leaf.shape)} in the config. Choose a config of the same size."
            )


def _compare(source: Config, target: Config) -> list[str]:
    """Return what weights of the same shapes mean otherwise in another config."""
    before, after = flatten_config(source), flatten_config(target)
    notes = []
    for field, value in before.items():
        if value == after[field] or field in _WITHOUT_WEIGHTS or not field.startswith(_READERS):
            continue
        if field.endswith("num_heads"):
            raise InputError(
                f"The models must agree in `{field}`, which is {value} in the run and {after[field]} in the config: "
                "heads are parts of the same weights. Choose the run's."
            )
        notes.append(f"The same weights with another `{field}`: {value} in the run, {after[field]} in the config.")
    return notes


def name_path(path: Path) -> str:
    """Return the name of a parameter, such as ``read_out.kernel``.

    Args:
        path: its place.
    """
    return ".".join(map(str, path))


def _by(grid: tuple[int, int]) -> str:
    return f"{grid[0]} x {grid[1]}"
