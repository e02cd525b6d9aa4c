"""Where the normalisation P stands in a substep of a flow f (MATH.md section 4).

``pre`` has it inside the field, ``u + c dt f(P(u))``: a smooth ODE. ``post`` has it after
the substep, ``P(u + c dt f(u))``: a constraint. ``tangent`` has a constraint too, and a field that
does not leave it, ``P(u + c dt Pi_u f(u))``: a smooth ODE on the set.
"""

from flax import nnx

from ctt.dynamics.dropout import Masked
from ctt.dynamics.normalization import Normalization
from ctt.dynamics.operator import Flow, Operator, Projection, find_flow, flow_order, is_reversible
from ctt.typing import Array, Time, Tokens


class _Placed(nnx.Module):
    """What all placements have in common."""

    operator: Operator

    @property
    def is_reversible(self) -> bool:
        """Whether the operator may flow backwards in time."""
        return is_reversible(self.operator)


class PreNormalized(_Placed):
    """The operator ``f(t, P(u))``; with Lie, Euler and step 1 the pre-norm Transformer (ViT)."""

    def __init__(self, operator: Operator, normalization: Projection):
        """Place `normalization` before `operator`.

        Args:
            operator: the field f.
            normalization: the projection P.
        """
        self.operator = operator
        self.normalization = normalization

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``f(t, P(u))``.

        Args:
            t: time.
            u: state `[..., tokens, width]`.
        """
        return self.operator.vector_field(t, self.normalization.project(t, u))

    def masked(self, mask: Array) -> "PreNormalized":
        """Return the same operator with its field multiplied by a dropout mask.

        Args:
            mask: factors that broadcast against the state.
        """
        return PreNormalized(Masked(self.operator, mask), self.normalization)


class PostNormalized(_Placed):
    """The operator f whose substeps end with P; with Lie, Euler and step 1 the post-norm Transformer."""

    def __init__(self, operator: Operator, normalization: Projection):
        """Place `normalization` after each substep of `operator`.

        Args:
            operator: the field f.
            normalization: the projection P.
        """
        self.operator = operator
        self.normalization = normalization

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``f(t, u)``.

        Args:
            t: time.
            u: state `[..., tokens, width]`.
        """
        return self.operator.vector_field(t, u)

    def retract(self, t: Time, u: Tokens) -> Tokens:
        """Return ``P(u)``.

        Args:
            t: time.
            u: state `[..., tokens, width]`, the end of a substep.
        """
        return self.normalization.project(t, u)

    @property
    def flow(self) -> Flow | None:
        """The operator's own flow, if it has one; the normalisation follows it as it follows any substep."""
        return find_flow(self.operator)

    @property
    def flow_order(self) -> float:
        """Order of the operator's own flow."""
        return flow_order(self.operator)

    def masked(self, mask: Array) -> "PostNormalized":
        """Return the same operator with its field multiplied by a dropout mask.

        Args:
            mask: factors that broadcast against the state.
        """
        return PostNormalized(Masked(self.operator, mask), self.normalization)


class TangentNormalized(_Placed):
    """The operator ``Pi_v f(t, u) / s2`` whose substeps end on the set, with ``u = s1 + s2 v``.

    The state of the loop is `v`, which lives on S1(0, 1) at all times: projecting `u` itself onto a set that
    moves would lose the rate of change of the set, and an order with it. With affine kind ``none`` the two are
    the same.

    References:
        MATH.md section 1, moving constraint sets, and section 4, placement `tangent`.
    """

    is_tangent = True

    def __init__(self, operator: Operator, normalization: Normalization):
        """Keep `operator` on the set of `normalization`.

        Args:
            operator: the field f.
            normalization: the set, of affine kind ``none`` or ``scalar``.
        """
        self.operator = operator
        self.normalization = normalization

    def vector_field(self, t: Time, u: Tokens) -> Tokens:
        """Return ``Pi_v f(t, s1 + s2 v) / s2``.

        Args:
            t: time.
            u: the state `v` `[..., tokens, width]` in the moving frame.
        """
        field = self.operator.vector_field(t, self.normalization.leave_frame(u))
        return self.normalization.tangent(u, self.normalization.enter_frame(field))

    def retract(self, t: Time, u: Tokens) -> Tokens:
        """Return the nearest point of S1(0, 1).

        Args:
            t: time, unused: in its frame the set does not move.
            u: the state `v` `[..., tokens, width]`, the end of a substep.
        """
        del t
        return self.normalization.retract(u)

    def masked(self, mask: Array) -> "TangentNormalized":
        """Return the same operator with its field multiplied by a dropout mask.

        Args:
            mask: factors that broadcast against the state.
        """
        return TangentNormalized(Masked(self.operator, mask), self.normalization)


PLACEMENTS: dict[str, type[PreNormalized] | type[PostNormalized] | type[TangentNormalized]] = {
    "pre": PreNormalized,
    "post": PostNormalized,
    "tangent": TangentNormalized,
}
"""Placements by name."""


def place_operator(placement: str, operator: Operator, normalization: Normalization) -> Operator:
    """Return an operator with the normalisation where a placement wants it.

    An operator with a flow of its own is not normalised by `pre`: the flow of ``f(P(u))`` is not that of f.

    Args:
        placement: ``pre``, ``post`` or ``tangent``.
        operator: the field f.
        normalization: the projection P.
    """
    if placement == "pre" and find_flow(operator) is not None:
        return operator
    return PLACEMENTS[placement](operator, normalization)
