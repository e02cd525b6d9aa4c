"""Time: the splitting and its grid, the weights as functions of time, and how gradients cross it."""

from dataclasses import dataclass

from ctt.config.name import BasisName, GradientMethodName, SchemeName, SubstepName


@dataclass(frozen=True, kw_only=True)
class SplittingConfig:
    """Time: the splitting scheme, the substep inside it, and the grid."""

    scheme: SchemeName = "lie"
    """Operator splitting scheme, over `model.operators` in their order; `word`: your own, given by `word`; \
`literal`: the scheme (3.5)-(3.10) of the paper as one layer."""
    word: str | None = None
    """Your own scheme, with `scheme` word: `attention/2 feedforward attention/2`, several words as \
`0.5 (attention feedforward) + 0.5 (feedforward attention)`, operators that flow together as `{a+b}`."""
    substep: SubstepName = "euler"
    """One-step method that approximates the flow of each letter of the scheme; `exact`: the operator's own flow."""
    operator_substeps: tuple[SubstepName, ...] = ()
    """A substep for each of `model.operators`, in their order. Empty: `substep` for all."""
    steps: int | None = None
    """Number of time steps (the depth of the network), >= 1. None: 4, or for a CvT the sum of `model.stages.steps`."""
    horizon: float | None = None
    """Final time, > 0; the step is horizon / steps. None: `steps`, the ordinary Transformer (step 1)."""
    allow_reduced_order: bool = False
    """Let a combination run whose order is lower than the scheme's, or that has no limit as the step goes to 0."""

    @property
    def substep_text(self) -> str:
        """The substep of all operators, or those of each, as a reader writes them."""
        return "/".join(self.operator_substeps) or self.substep


@dataclass(frozen=True, kw_only=True)
class ControlsConfig:
    """The weights as functions of time."""

    basis: BasisName = "piecewise_constant"
    """Basis of every control in time."""
    knots: int | None = None
    """Number of coefficients per control, >= 1, divides `splitting.steps`; 1 ties all steps (of a stage). None: one a \
step."""


@dataclass(frozen=True, kw_only=True)
class GradientConfig:
    """How the gradient through the time steps is computed."""

    method: GradientMethodName = "store"
    """`store` keeps all activations; `remat` keeps one state a step and recomputes the rest."""
