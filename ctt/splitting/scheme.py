"""A splitting scheme as data: a weighted sum of words of letters (MATH.md section 5)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ctt.config.error import InputError, suggest


@dataclass(frozen=True)
class Letter:
    """The flow of the sum of some operators over a fraction of the step.

    Attributes:
        operators: indices of the operators that flow together.
        fraction: how much of the step, in units of the step.
    """

    operators: frozenset[int]
    fraction: float


@dataclass(frozen=True)
class Word:
    """Letters in the order in which they act.

    Attributes:
        letters: the first one acts first.
    """

    letters: tuple[Letter, ...]

    def total(self, operator: int) -> float:
        """Return the sum of an operator's fractions.

        Args:
            operator: its index.
        """
        return math.fsum(letter.fraction for letter in self.letters if operator in letter.operators)

    @property
    def is_palindrome(self) -> bool:
        """Whether the word reads the same backwards: with exact flows its error expansion is even."""
        return self.letters == self.letters[::-1]


@dataclass(frozen=True)
class Scheme:
    """One step of a splitting: ``sum_w weight_w word_w(u)``.

    Attributes:
        name: what messages call it.
        num_operators: how many operators it splits.
        words: each with its weight; the weights sum to 1.
        order: order of the splitting with exact substeps.
        merge_ends: whether the last letter of a step is joined with the first of the next.
        reference: where the scheme comes from.
    """

    name: str
    num_operators: int
    words: tuple[tuple[float, Word], ...]
    order: int
    merge_ends: bool = False
    reference: str = ""

    def __post_init__(self) -> None:
        """Check the words.

        Raises:
            InputError: weights or fractions do not sum to 1, an index is out of range, or the ends cannot merge.
        """
        total = math.fsum(weight for weight, _ in self.words)
        if not math.isclose(total, 1.0, abs_tol=1e-12):
            raise InputError(f"The weights of the words of `{self.name}` must sum to 1, got {total}. Rescale them.")
        for _, word in self.words:
            for operator in {o for letter in word.letters for o in letter.operators} | set(range(self.num_operators)):
                self._check_operator(word, operator)
        if self.merge_ends:
            ends = [(word.letters[0].operators, word.letters[-1].operators) for _, word in self.words]
            if len(ends) != 1 or ends[0][0] != ends[0][1]:
                raise InputError(
                    f"`merge_ends` of `{self.name}` needs a single word that begins and ends with the same operators. "
                    "Leave the flag out."
                )

    def _check_operator(self, word: Word, operator: int) -> None:
        if not 0 <= operator < self.num_operators:
            raise InputError(
                f"The words of `{self.name}` must name operators 0 to {self.num_operators - 1}, got {operator}. "
                "Correct the index."
            )
        total = word.total(operator)
        if not math.isclose(total, 1.0, abs_tol=1e-12):
            raise InputError(
                f"In each word of `{self.name}` the fractions of operator {operator} must sum to 1, got {total}. "
                "Rescale them."
            )

    @property
    def num_letters(self) -> int:
        """Number of substeps in one step."""
        return sum(len(word.letters) for _, word in self.words)

    def describe(self, names: tuple[str, ...]) -> str:
        """Return the words in a reader's notation, such as ``attention/2 feedforward attention/2``.

        Args:
            names: a name for each operator.
        """
        texts = [
            (f"{weight:g} " if weight != 1 else "") + " ".join(_describe(letter, names) for letter in word.letters)
            for weight, word in self.words
        ]
        return " + ".join(f"({text})" if len(texts) > 1 else text for text in texts)


def _describe(letter: Letter, names: tuple[str, ...]) -> str:
    operators = "+".join(names[o] for o in sorted(letter.operators))
    operators = f"{{{operators}}}" if len(letter.operators) > 1 else operators
    if letter.fraction == 1:
        return operators
    inverse = 1 / letter.fraction
    return f"{operators}/{inverse:g}" if inverse == round(inverse) else f"{letter.fraction:g} {operators}"


def single_word(*letters: tuple[int, float]) -> tuple[tuple[float, Word], ...]:
    """Return the words of a scheme that is one word of single-operator letters.

    Args:
        letters: pairs of an operator's index and a fraction, in the order in which they act.

    Example:
        >>> single_word((0, 0.5), (1, 1.0), (0, 0.5))[0][1].is_palindrome
        True
    """
    return ((1.0, Word(tuple(Letter(frozenset({operator}), fraction) for operator, fraction in letters))),)


def _lie(num_operators: int) -> Scheme:
    words = single_word(*((o, 1.0) for o in range(num_operators)))
    return Scheme("lie", num_operators, words, order=1, reference="Trotter (1959); arXiv:2510.03989, (3.5)-(3.10)")


def _lie_reversed(num_operators: int) -> Scheme:
    words = single_word(*((o, 1.0) for o in reversed(range(num_operators))))
    return Scheme("lie_reversed", num_operators, words, order=1, reference="Trotter (1959)")


def _strang(num_operators: int) -> Scheme:
    last = num_operators - 1
    half = [(o, 0.5) for o in range(last)]
    words = single_word(*half, (last, 1.0), *reversed(half))
    return Scheme("strang", num_operators, words, order=2, reference="Strang, SIAM J. Numer. Anal. 5 (1968)")


SCHEMES: dict[str, Callable[[int], Scheme]] = {
    "lie": _lie,
    "lie_reversed": _lie_reversed,
    "strang": _strang,
}
"""Schemes by name, each for any number of operators."""


def build_scheme(scheme: str | Scheme, num_operators: int) -> Scheme:
    """Return a scheme for a number of operators.

    Args:
        scheme: a name, or a scheme of one's own.
        num_operators: how many operators are split, >= 1.

    Raises:
        InputError: the name is unknown, or the given scheme is for another number of operators.

    Example:
        >>> build_scheme("strang", 2).describe(("A", "F"))
        'A/2 F A/2'
    """
    if isinstance(scheme, Scheme):
        if scheme.num_operators != num_operators:
            raise InputError(
                f"The scheme `{scheme.name}` splits {scheme.num_operators} operators, got {num_operators}. "
                "Give as many operators as its words name."
            )
        return scheme
    if scheme not in SCHEMES:
        raise InputError(f"`scheme` must be a known name, got {scheme!r}: {suggest(str(scheme), SCHEMES)}.")
    if num_operators < 1:
        raise InputError("A splitting scheme needs at least one operator, got none. Pass a tuple of operators.")
    return SCHEMES[scheme](num_operators)
