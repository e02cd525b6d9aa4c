"""Every splitting scheme as a diffrax solver over a `MultiTerm`: adaptive steps, dense output.

In this file alone the names are diffrax's: the state is `y`, and `args` goes through to the terms.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from ctt.config.error import InputError
from ctt.config.name import SamplingName
from ctt.dynamics.operator import Constrained, Operator, Projection, find_flow, flow_order, is_bolted_on
from ctt.splitting.integrate import build_marcher
from ctt.splitting.scheme import Letter, Scheme, build_scheme
from ctt.splitting.step import apply_letter, split_step, walk_clocks
from ctt.splitting.substep import Substep, subtract, sum_states
from ctt.typing import PyTree, State, Time


class OperatorField(eqx.Module):
    """The right-hand side of one operator, in the signature of `diffrax.ODETerm`."""

    operator: Any

    def __call__(self, t: Any, y: State, args: PyTree) -> State:
        """Return ``f(t, y)``; zero for a projection.

        Args:
            t: time.
            y: state.
            args: unused: the operator holds its controls.
        """
        del args
        if isinstance(self.operator, Operator):
            return self.operator.vector_field(t, y)
        return jax.tree.map(jnp.zeros_like, y)


@dataclass(frozen=True)
class _TermOperator:
    """A term of diffrax as an operator; `direction` is -1 where diffrax runs time backwards."""

    term: Any
    args: PyTree
    direction: Time

    def vector_field(self, t: Time, u: State) -> State:
        return self.term.vf_prod(t, u, self.args, self.term.contr(t, t + 1))


@dataclass(frozen=True)
class _FlowingOperator(_TermOperator):
    own_flow: Callable[[State, Time, Time], State]

    def flow(self, u: State, t0: Time, t1: Time) -> State:
        return self.own_flow(u, self.direction * t0, self.direction * t1)


@dataclass(frozen=True)
class _ConstrainedOperator(_TermOperator):
    own_flow: Callable[[State, Time, Time], State] | None
    back: Callable[[Time, State], State]

    @property
    def flow(self) -> Callable[[State, Time, Time], State] | None:
        return None if self.own_flow is None else self._flow

    def _flow(self, u: State, t0: Time, t1: Time) -> State:
        assert self.own_flow is not None
        return self.own_flow(u, self.direction * t0, self.direction * t1)

    def retract(self, t: Time, u: State) -> State:
        return self.back(self.direction * t, u)


class SplittingSolver(diffrax.AbstractAdaptiveSolver):
    """A splitting scheme as a solver for ``diffrax.MultiTerm(ODETerm(f_1), ODETerm(f_2), ...)``.

    The embedded error is O(h^2) whatever the scheme, the sum of the sizes of two parts.

    * The splitting: a word that begins and ends alike (`strang`) has its last increment against the first, free of
      charge; a weighted sum of words (`swss`) a word against the mean; other words the reversed or the Lie word,
      an evaluation of each operator more. The free estimate is blind to one half of the commutator (to ``F'A``
      for A/2 F A/2), so where an operator flows exactly the Lie word is used always.
    * The substeps: ``h/2 (f(t1, y1) - f(t0, y0))`` over the operators whose substep is not exact. It also sees
      what the free estimate does not.

    With `merge_ends` the solver's state holds what comes before the last letter, so that the ends merge from
    step to step, also between steps of different lengths; a jump begins anew.

    Attributes:
        scheme: the words.
        substeps: the method for each operator.
        sampling: ``stage``, ``midpoint`` or ``step``, see `ctt.integrate`.
        parts: the operators, for what a term does not hold: flows, and retractions onto constraint sets.

    References:
        MATH.md section 5.
    """

    scheme: Scheme = eqx.field(static=True)
    substeps: tuple[Substep, ...] = eqx.field(static=True)
    sampling: SamplingName = eqx.field(static=True)
    parts: tuple[Any, ...]

    term_structure = diffrax.MultiTerm

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        """Cubic Hermite; linear where a projection is bolted on, whose effect the fields do not know."""
        if any(is_bolted_on(part) for part in self.parts):
            return diffrax.LocalLinearInterpolation
        return diffrax.ThirdOrderHermitePolynomialInterpolation

    def order(self, terms: PyTree) -> int | None:
        """Return the smallest of the orders of the scheme and of the substeps, None where all are exact.

        Args:
            terms: the terms.
        """
        del terms
        assert self.scheme.order is not None
        pairs = zip(self.substeps, self.parts, strict=True)
        order = min(self.scheme.order, *(flow_order(f) if method.is_exact else method.order for method, f in pairs))
        return None if math.isinf(order) else int(order)

    def error_order(self, terms: PyTree) -> int:
        """Return 2, the local order of the embedded error.

        Args:
            terms: the terms.
        """
        del terms
        return 2

    def init(self, terms: PyTree, t0: Any, t1: Any, y0: State, args: PyTree) -> Any:
        """Return the state before the first step.

        Args:
            terms: the terms.
            t0: initial time.
            t1: end of the first step.
            y0: initial state.
            args: passed to the terms.

        Raises:
            InputError: there are not as many terms as operators.
        """
        del t1, args
        if len(terms.terms) != self.scheme.num_operators:
            raise InputError(
                f"`{self.scheme.name}` splits {self.scheme.num_operators} operators, got {len(terms.terms)} terms. "
                "Give a MultiTerm with a term an operator."
            )
        return (y0, jnp.zeros_like(jnp.asarray(t0)), jnp.asarray(True)) if self.scheme.merge_ends else None

    def step(
        self, terms: PyTree, t0: Any, t1: Any, y0: State, args: PyTree, solver_state: Any, made_jump: Any
    ) -> tuple[State, State | None, dict[str, Any], Any, diffrax.RESULTS]:
        """Return the state at `t1`, the embedded error, what dense output needs, and the solver's state.

        Args:
            terms: the terms.
            t0: start of the step.
            t1: end of the step.
            y0: state at `t0`.
            args: passed to the terms.
            solver_state: what the last step returned.
            made_jump: whether a field has jumped at `t0`.
        """
        operators, h = self._operators(terms, args), t1 - t0
        if self.scheme.merge_ends:
            y1, error, solver_state = self._step_merged(operators, y0, t0, h, solver_state, made_jump)
        else:
            y1, error = self._step_plain(operators, y0, t0, h)
        begin, end = (t0, t1) if self.sampling == "stage" else (t0 + h / 2, t0 + h / 2)
        dense = {"y0": y0, "y1": y1}
        if self.interpolation_cls is diffrax.ThirdOrderHermitePolynomialInterpolation:
            for name, t, y in (("k0", begin, y0), ("k1", end, y1)):
                dense[name] = jax.tree.map(lambda du: h * du, self._field(operators, t, y))
        inexact = [f for f, method in zip(operators, self.substeps, strict=True) if not method.is_exact]
        if inexact:
            change = subtract(self._field(inexact, end, y1), self._field(inexact, begin, y0))
            error = jax.tree.map(lambda e, d: jnp.abs(e) + jnp.abs(h / 2 * d), error, change)
        return y1, error, dense, solver_state, diffrax.RESULTS.successful

    def func(self, terms: PyTree, t0: Any, y0: State, args: PyTree) -> State:
        """Return the unsplit right-hand side.

        Args:
            terms: the terms.
            t0: time.
            y0: state.
            args: passed to the terms.
        """
        return self._field(self._operators(terms, args), t0, y0)

    def _operators(self, terms: PyTree, args: PyTree) -> tuple[Any, ...]:
        return tuple(_join(term, args, part) for term, part in zip(terms.terms, self.parts, strict=True))

    def _field(self, operators: Sequence[Any], t: Time, y: State) -> State:
        return sum_states(f.vector_field(t, y) for f in operators)

    def _apply(self, letter: tuple[Letter, Any], operators: Sequence[Any], y: State, h: Time, **where: Any) -> State:
        return apply_letter(
            letter[0],
            self.substeps,
            operators=operators,
            clocks=letter[1],
            u=y,
            dt=h,
            sampling=self.sampling,
            **where,
        )

    def _middle(self, t0: Any, h: Time) -> dict[str, Time]:
        return {"frozen_at": t0 + h / 2} if self.sampling == "step" else {}

    def _step_plain(self, operators: Sequence[Any], y0: State, t0: Any, h: Time) -> tuple[State, State]:
        step = {"operators": operators, "u": y0, "t": t0, "dt": h, "sampling": self.sampling}
        _, word = self.scheme.words[0]
        if len(self.scheme.words) > 1:
            y1 = split_step(self.scheme, self.substeps, **step)
            if self._is_free:
                one = Scheme(self.scheme.name, self.scheme.num_operators, ((1.0, word),))
                return y1, subtract(split_step(one, self.substeps, **step), y1)
            return y1, self._lie_error(y1, **step)
        states, letters = [y0], walk_clocks(word, t0, h)
        for letter in letters:
            states.append(self._apply(letter, operators, states[-1], h, **self._middle(t0, h)))
        y1, (first, _), (last, _) = states[-1], letters[0], letters[-1]
        if self._is_free and len(letters) > 1 and first == last:
            return y1, subtract(subtract(y1, states[-2]), subtract(states[1], y0))
        return y1, self._lie_error(y1, **step)

    @property
    def _is_free(self) -> bool:
        """Whether the free estimates may be trusted: where the defect of the substeps sees the rest."""
        return not any(method.is_exact for method in self.substeps)

    def _lie_error(self, y1: State, *, u: State, **step: Any) -> State:
        """Compare with the Lie word, or the Lie word with its reverse; one operator has no splitting error."""
        if self.scheme.num_operators == 1:
            return jax.tree.map(jnp.zeros_like, u)
        other = build_scheme("lie", self.scheme.num_operators)
        if self.scheme.words == other.words:
            other = build_scheme("lie_reversed", self.scheme.num_operators)
        return subtract(y1, split_step(other, self.substeps, u=u, **step))

    def _step_merged(
        self, operators: Sequence[Any], y0: State, t0: Any, h: Time, solver_state: Any, made_jump: Any
    ) -> tuple[State, State, Any]:
        inside, pending, is_first = solver_state
        is_fresh = is_first | made_jump
        (first, clocks), *inner, (last, last_clocks) = walk_clocks(self.scheme.words[0][1], t0, h)
        pending = jnp.where(is_fresh, 0.0, pending)
        start = jax.tree.map(lambda fresh, old: jnp.where(is_fresh, fresh, old), y0, inside)
        merged_clocks = {index: clock - pending for index, clock in clocks.items()}
        y = self._apply((first, merged_clocks), operators, start, h, length=pending + first.fraction * h)
        for letter in inner:
            y = self._apply(letter, operators, y, h, **self._middle(t0, h))
        y1 = self._apply((last, last_clocks), operators, y, h)
        # The estimate of the unmerged word; where steps are fixed it is not used, and not computed.
        if self._is_free:
            opened = self._apply((first, clocks), operators, y0, h)
            error = subtract(subtract(y1, y), subtract(opened, y0))
        else:
            error = self._lie_error(y1, operators=operators, u=y0, t=t0, dt=h, sampling=self.sampling)
        return y1, error, (y, jnp.asarray(last.fraction * h, pending.dtype), jnp.asarray(False))


def _join(term: Any, args: PyTree, part: Any) -> Any:
    """Return a term as an operator, with the flow and the retraction of the operator that it came from."""
    direction = term.contr(0.0, 1.0)
    flow = find_flow(part)
    if isinstance(part, Constrained):
        return _ConstrainedOperator(term, args, direction, flow, part.retract)
    if isinstance(part, Projection) and not isinstance(part, Operator):
        return _ConstrainedOperator(term, args, direction, None, part.project)
    if flow is not None:
        return _FlowingOperator(term, args, direction, flow)
    return _TermOperator(term, args, direction)


def build_solver(
    operators: Sequence[Any],
    *,
    scheme: str | Scheme = "strang",
    substep: str | Sequence[str] = "midpoint",
    sampling: SamplingName = "stage",
    allow_reduced_order: bool = False,
) -> tuple[diffrax.MultiTerm, SplittingSolver]:
    """Return the terms and the solver for `diffrax.diffeqsolve`.

    Args:
        operators: functions ``f(t, u)``, operators, or projections.
        scheme: name of a splitting scheme, or a `Scheme`.
        substep: name of the method for the flow of one letter, or a name for each operator.
        sampling: ``stage``, ``midpoint`` or ``step``, see `ctt.integrate`.
        allow_reduced_order: see `ctt.integrate`.

    Raises:
        InputError: see `ctt.integrate`.

    Example:
        >>> terms, solver = build_solver((lambda t, u: -u, lambda t, u: jnp.sin(t) * u))
        >>> solution = diffrax.diffeqsolve(
        ...     terms, solver, 0.0, 1.0, 0.1, jnp.array(1.0), stepsize_controller=diffrax.PIDController(1e-4, 1e-4)
        ... )
        >>> bool(abs(solution.ys[0] - jnp.exp(-jnp.cos(1.0))) < 1e-3)
        True
    """
    marcher = build_marcher(
        operators, scheme=scheme, substep=substep, sampling=sampling, allow_reduced_order=allow_reduced_order
    )
    terms = diffrax.MultiTerm(*(diffrax.ODETerm(OperatorField(part)) for part in marcher.operators))
    return terms, SplittingSolver(marcher.scheme, marcher.substeps, sampling, marcher.operators)
