"""One step of a splitting: the words of a scheme, each letter by a substep, each operator on its clock."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from ctt.config.name import SamplingName
from ctt.dynamics.operator import Constrained, Operator, Projection, find_flow
from ctt.splitting.scheme import Letter, Scheme, Word
from ctt.splitting.substep import Substep, add_scaled, sum_states
from ctt.typing import State, Time


def split_step(
    scheme: Scheme,
    substeps: Sequence[Substep],
    *,
    operators: Sequence[Operator | Projection],
    u: State,
    t: Time,
    dt: Time,
    sampling: SamplingName = "stage",
) -> State:
    """Return the state one step later.

    Each operator has a clock of its own that starts at `t` and is advanced by its letters'
    fractions of `dt`. Where its field is evaluated is a matter of `sampling`: ``stage``, at the substep's stage
    times on that clock; ``midpoint``, for all stages at the middle of the letter's interval on that clock, as
    for controls that are frozen during a letter; ``step``, at the middle of the step for all letters, as for
    controls that are constant in a step (the clock of `yoshida4` runs out of the step and back).

    Args:
        scheme: the words.
        substeps: the method for a letter of each operator.
        operators: one for each index that the words name; a projection acts as itself, whatever the fraction.
        u: state at `t`.
        t: time at the start of the step.
        dt: length of the step.
        sampling: ``stage``, ``midpoint`` or ``step``.

    Returns:
        The state at ``t + dt``. The mean of several words is brought back to the constraint set, if there is one.

    References:
        MATH.md section 5.
    """
    results = [
        (weight, _apply_word(word, substeps, operators=operators, u=u, t=t, dt=dt, sampling=sampling))
        for weight, word in scheme.words
    ]
    if len(results) == 1:
        return results[0][1]
    return _retract_mean(_weighted_sum(results), operators, t + dt if sampling == "stage" else t + dt / 2)


def _weighted_sum(results: Sequence[tuple[float, State]]) -> State:
    total = jax.tree.map(lambda x: x * 0, results[0][1])
    for weight, result in results:
        total = add_scaled(total, weight, result)
    return total


def _retract_mean(u: State, operators: Sequence[Operator | Projection], t: Time) -> State:
    """Bring the mean of states on a set back to the set, which is not convex."""
    for operator in reversed(operators):
        if isinstance(operator, Constrained):
            return operator.retract(t, u)
        if isinstance(operator, Projection):
            return operator.project(t, u)
    return u


def _apply_word(
    word: Word,
    substeps: Sequence[Substep],
    *,
    operators: Sequence[Operator | Projection],
    u: State,
    t: Time,
    dt: Time,
    sampling: SamplingName,
) -> State:
    frozen_at = t + dt / 2 if sampling == "step" else None
    for letter, clocks in walk_clocks(word, t, dt):
        u = apply_letter(
            letter,
            substeps,
            operators=operators,
            clocks=clocks,
            u=u,
            dt=dt,
            sampling=sampling,
            frozen_at=frozen_at,
        )
    return u


def walk_clocks(word: Word, t: Time, dt: Time) -> list[tuple[Letter, dict[int, Time]]]:
    """Return the letters of a word, each with the times at which its operators' flows start.

    Args:
        word: the letters.
        t: time at the start of the step.
        dt: length of the step.
    """
    elapsed: dict[int, float] = {}
    steps = []
    for letter in word.letters:
        steps.append((letter, {index: t + elapsed.get(index, 0.0) * dt for index in letter.operators}))
        for index in letter.operators:
            elapsed[index] = elapsed.get(index, 0.0) + letter.fraction
    return steps


def apply_letter(
    letter: Letter,
    substeps: Sequence[Substep],
    *,
    operators: Sequence[Operator | Projection],
    clocks: dict[int, Time],
    u: State,
    dt: Time,
    sampling: SamplingName = "stage",
    length: Time | None = None,
    frozen_at: Time | None = None,
) -> State:
    """Return the state after the flow of one letter.

    Args:
        letter: which operators, and over which fraction of `dt`.
        substeps: the method for each operator of the splitting.
        operators: all operators of the splitting.
        clocks: for each operator of the letter, the time at which its flow starts.
        u: the state before.
        dt: length of the whole step.
        sampling: see `split_step`.
        length: length of the letter, if it is not its fraction of `dt`: a traced fraction.
        frozen_at: with `sampling` ``step``, the middle of the step; None: that of the letter, which for letters
            that join two steps is the node between them.
    """
    h = letter.fraction * dt if length is None else length
    begins = {i: clocks[i] if sampling == "stage" or frozen_at is None else frozen_at - h / 2 for i in letter.operators}
    fields = [i for i in sorted(letter.operators) if isinstance(operators[i], Operator)]
    if fields:
        method = substeps[fields[0]]
        if method.advance is None:
            flow, begin = find_flow(operators[fields[0]]), begins[fields[0]]
            assert flow is not None  # Checked when the scheme met its operators.
            u = flow(u, begin, begin + h)
        else:
            pairs = [(begins[i], operators[i]) for i in fields]
            u = method.advance(partial(_sum_of_fields, pairs, None if sampling == "stage" else h / 2), 0.0, u, h)
    for i in sorted(letter.operators):
        operator, end = operators[i], begins[i] + (h if sampling == "stage" else h / 2)
        if isinstance(operator, Constrained):
            u = operator.retract(end, u)
        elif isinstance(operator, Projection):
            u = operator.project(end, u)
    return u


def _sum_of_fields(fields: Sequence[tuple[Time, Any]], frozen_at: Time | None, offset: Time, u: State) -> State:
    offset = offset if frozen_at is None else frozen_at
    return sum_states(operator.vector_field(clock + offset, u) for clock, operator in fields)
