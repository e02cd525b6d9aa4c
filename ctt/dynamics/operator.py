"""What an operator of the right-hand side is: the protocols that a splitting scheme relies on.

An operator needs no more than `vector_field`. What else it may offer is found by name:

* ``flow(u, t0, t1)``: its own exact flow, used by the substep `exact`; ``flow_order``: the order of
  that flow where it is not exact.
* ``retract(t, u)``: its substeps end on a constraint set; ``is_tangent``: its field is tangent to that set, so
  that the retraction costs no order.
* ``is_reversible = False``: it cannot flow backwards in time.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ctt.typing import Array, State, Time

Flow: TypeAlias = Callable[[State, Time, Time], State]
"""The flow of one operator: ``flow(u, t0, t1)`` is the solution at t1 of ``u_t = f(t, u)``, ``u(t0) = u``."""


@runtime_checkable
class Operator(Protocol):
    """One summand of ``u_t = f_1(t, u) + f_2(t, u) + ...`` with its controls frozen."""

    def vector_field(self, t: Time, u: State) -> State:
        """Return ``f(t, u)``, of the structure and shape of `u`."""
        ...


@runtime_checkable
class Projection(Protocol):
    """A constraint set; its implicit step is the projection, whatever the step size (MATH.md section 1)."""

    def project(self, t: Time, u: State) -> State:
        """Return the point of the set at time `t` that is nearest to `u`."""
        ...


@runtime_checkable
class Constrained(Operator, Protocol):
    """An operator whose substeps end on a constraint set."""

    def retract(self, t: Time, u: State) -> State:
        """Return `u`, the end of a substep, brought back to the set at time `t`."""
        ...


@runtime_checkable
class Maskable(Operator, Protocol):
    """An operator that knows where a dropout mask belongs."""

    def masked(self, mask: Array) -> Operator:
        """Return the same operator with its field multiplied by `mask`."""
        ...


def find_flow(operator: Any) -> Flow | None:
    """Return an operator's own flow, or None if it offers none.

    Args:
        operator: an operator.
    """
    return getattr(operator, "flow", None)


def flow_order(operator: Any) -> float:
    """Return the order of an operator's own flow: infinite where it is exact, 2 for a Cayley transform.

    Args:
        operator: an operator with a flow.
    """
    return float(getattr(operator, "flow_order", math.inf))


def is_bolted_on(operator: Any) -> bool:
    """Return whether a projection acts after the substeps while the field is not tangent to its set.

    Such a projection caps every scheme at order 1 and has no inverse (MATH.md section 5, column `post`).

    Args:
        operator: an operator or a projection.
    """
    if isinstance(operator, Constrained):
        return not getattr(operator, "is_tangent", False)
    return isinstance(operator, Projection) and not isinstance(operator, Operator)


def is_reversible(operator: Any) -> bool:
    """Return whether an operator may flow backwards in time: not so for diffusion.

    Args:
        operator: an operator.
    """
    return bool(getattr(operator, "is_reversible", True))
