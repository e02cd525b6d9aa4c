"""The array and state types that public signatures use."""

from collections.abc import Callable
from typing import Any, TypeAlias

from jaxtyping import Array, Float, Int, Key, PyTree, Shaped, UInt8

State: TypeAlias = Any
"""The state `u`: an array, or a pytree of arrays."""

Time: TypeAlias = float | Float[Array, ""]
"""A time in [0, horizon]."""

Tokens: TypeAlias = Float[Array, "*batch tokens width"]
"""A state of tokens."""

Images: TypeAlias = Shaped[Array, "batch height width channels"]
"""Raw pixels, uint8 or float in [0, 255]."""

Logits: TypeAlias = Float[Array, "batch classes"]
Labels: TypeAlias = Int[Array, " batch"]

VectorField: TypeAlias = Callable[[Time, State], State]
"""A right-hand side ``f(t, u)``."""

Step: TypeAlias = Callable[[State, Any, Any], State]
"""A step map ``u_{n+1} = step(u_n, theta_n, n)``."""

RunningCost: TypeAlias = Callable[[Any, State, State, Any], Any]
"""A cost ``L(n, u_n, u_{n+1}, theta_n)`` of one step: a scalar, or a pytree of scalars."""

__all__ = [
    "Array",
    "Float",
    "Images",
    "Int",
    "Key",
    "Labels",
    "Logits",
    "PyTree",
    "RunningCost",
    "State",
    "Step",
    "Time",
    "Tokens",
    "UInt8",
    "VectorField",
]
