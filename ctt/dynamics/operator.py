"""What an operator of the right-hand side is: the protocols that a splitting scheme relies on."""

from typing import Protocol, runtime_checkable

from ctt.typing import Array, State, Time


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
