"""One step of a splitting: the words of a scheme, each letter by a substep, each operator on its clock."""

from collections.abc import Sequence
from functools import partial

import jax

from ctt.dynamics.operator import Constrained, Operator, Projection
from ctt.splitting.scheme import Letter, Scheme, Word
from ctt.splitting.substep import Substep, add_scaled
from ctt.typing import State, Time


def split_step(
    scheme: Scheme, substep: Substep, *, operators: Sequence[Operator | Projection], u: State, t: Time, dt: Time
) -> State:
    """Return the state one step later.

    Each operator has a clock of its own that starts at `t` and is advanced by its letters'
    fractions of `dt`; its field is evaluated at the substep's stage times on that clock.

    Args:
        scheme: the words.
        substep: the method for one letter.
        operators: one for each index that the words name; a projection acts as itself, whatever the fraction.
        u: state at `t`.
        t: time at the start of the step.
        dt: length of the step.

    Returns:
        The state at ``t + dt``.

    References:
        MATH.md section 5.
    """
    results = [
        (weight, _apply_word(word, substep, operators=operators, u=u, t=t, dt=dt)) for weight, word in scheme.words
    ]
    if len(results) == 1:
        return results[0][1]
    total = jax.tree.map(lambda x: x * 0, u)
    for weight, result in results:
        total = add_scaled(total, weight, result)
    return total


def _apply_word(
    word: Word, substep: Substep, *, operators: Sequence[Operator | Projection], u: State, t: Time, dt: Time
) -> State:
    elapsed = [0.0] * len(operators)
    for letter in word.letters:
        clocks = {index: t + elapsed[index] * dt for index in letter.operators}
        u = apply_letter(letter, substep, operators=operators, clocks=clocks, u=u, dt=dt)
        for index in letter.operators:
            elapsed[index] += letter.fraction
    return u


def apply_letter(
    letter: Letter,
    substep: Substep,
    *,
    operators: Sequence[Operator | Projection],
    clocks: dict[int, Time],
    u: State,
    dt: Time,
) -> State:
    """Return the state after the flow of one letter.

    Args:
        letter: which operators, and over which fraction of `dt`.
        substep: the method.
        operators: all operators of the splitting.
        clocks: for each operator of the letter, the time at which its flow starts.
        u: the state before.
        dt: length of the whole step.
    """
    h = letter.fraction * dt
    flowing = [(clocks[i], operators[i]) for i in sorted(letter.operators)]
    fields = [(clock, operator) for clock, operator in flowing if isinstance(operator, Operator)]
    if fields:
        u = substep.advance(partial(_sum_of_fields, fields), 0.0, u, h)
    for clock, operator in flowing:
        if isinstance(operator, Constrained):
            u = operator.retract(clock + h, u)
        elif isinstance(operator, Projection):
            u = operator.project(clock + h, u)
    return u


def _sum_of_fields(fields: Sequence[tuple[Time, Operator]], offset: Time, u: State) -> State:
    values = [operator.vector_field(clock + offset, u) for clock, operator in fields]
    return values[0] if len(values) == 1 else jax.tree.map(lambda *leaves: sum(leaves), *values)
