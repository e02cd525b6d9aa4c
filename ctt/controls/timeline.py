"""Operators as functions of time: controls that are evaluated where a solver asks, on any grid."""

from dataclasses import dataclass, field

import jax

from ctt.controls.stack import Controls
from ctt.dynamics.operator import Constrained, Flow, Operator, find_flow, flow_order, is_reversible
from ctt.typing import State, Time


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimedOperator:
    """One operator of a stack, with the controls of the time at which it is asked.

    Attributes:
        controls: the stack.
        index: which operator.
    """

    controls: Controls
    index: int = field(metadata={"static": True})

    def _at(self, t: Time) -> Operator:
        return self.controls.at(t)[self.index]

    @property
    def _structure(self) -> Operator:
        return self.controls.operators[self.controls.names[self.index]]

    def vector_field(self, t: Time, u: State) -> State:
        """Return ``f(t, u; theta(t))``.

        Args:
            t: time in [0, horizon].
            u: state.
        """
        return self._at(t).vector_field(t, u)

    @property
    def flow(self) -> Flow | None:
        """The operator's own flow, its controls frozen at the middle of the interval; None if it has none."""
        return None if find_flow(self._structure) is None else self._flow

    def _flow(self, u: State, t0: Time, t1: Time) -> State:
        flow = find_flow(self._at((t0 + t1) / 2))
        assert flow is not None
        return flow(u, t0, t1)

    @property
    def flow_order(self) -> float:
        """Order of the operator's own flow."""
        return flow_order(self._structure)

    @property
    def is_reversible(self) -> bool:
        """Whether the operator may flow backwards in time."""
        return is_reversible(self._structure)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimedConstraint(TimedOperator):
    """The same for an operator whose substeps end on a constraint set."""

    def retract(self, t: Time, u: State) -> State:
        """Return the state brought back to the set of time `t`.

        Args:
            t: time in [0, horizon].
            u: state, the end of a substep.
        """
        operator = self._at(t)
        assert isinstance(operator, Constrained)
        return operator.retract(t, u)

    @property
    def is_tangent(self) -> bool:
        """Whether the field is tangent to the set."""
        return bool(getattr(self._structure, "is_tangent", False))


def operators_in_time(controls: Controls) -> list[TimedOperator]:
    """Return the operators of a stack as functions of time, in the order that a scheme counts them.

    Args:
        controls: the stack.
    """
    structures = [controls.operators[name] for name in controls.names]
    return [
        (TimedConstraint if isinstance(part, Constrained) else TimedOperator)(controls, index)
        for index, part in enumerate(structures)
    ]
