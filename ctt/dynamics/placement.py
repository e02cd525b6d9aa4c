"""Where the normalisation P stands in a substep of a flow f (MATH.md section 4).

``pre`` has it inside the field, ``u + c dt f(P(u))``: a smooth ODE. ``post`` has it after
the substep, ``P(u + c dt f(u))``: a constraint.
"""

from typing import TypeAlias

from flax import nnx

from ctt.dynamics.dropout import Masked
from ctt.dynamics.operator import Operator, Projection
from ctt.typing import Array, Time, Tokens


class PreNormalized(nnx.Module):
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


class PostNormalized(nnx.Module):
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

    def masked(self, mask: Array) -> "PostNormalized":
        """Return the same operator with its field multiplied by a dropout mask.

        Args:
            mask: factors that broadcast against the state.
        """
        return PostNormalized(Masked(self.operator, mask), self.normalization)


Placed: TypeAlias = PreNormalized | PostNormalized

PLACEMENTS: dict[str, type[PreNormalized] | type[PostNormalized]] = {
    "pre": PreNormalized,
    "post": PostNormalized,
}
"""Placements by name."""
