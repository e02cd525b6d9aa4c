"""A splitting scheme as data: a weighted sum of words of letters (MATH.md section 5)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ctt.config.error import InputError, suggest
from ctt.splitting.condition import algebraic_order


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
        order: order of the splitting with exact substeps, infinite where there is no splitting error; None: that
            of the words, which is computed (`ctt.splitting.condition`). A higher claim than theirs is refused.
        merge_ends: whether the last letter of a step is joined with the first of the next.
        reference: where the scheme comes from.
    """

    name: str
    num_operators: int
    words: tuple[tuple[float, Word], ...]
    order: float | None = None
    merge_ends: bool = False
    reference: str = ""

    def __post_init__(self) -> None:
        """Check the words.

        Raises:
            InputError: weights or fractions do not sum to 1, an index is out of range, the ends cannot merge, or
                the claimed order is higher than that of the words.
        """
        numbers = [weight for weight, _ in self.words]
        numbers += [letter.fraction for _, word in self.words for letter in word.letters]
        if not all(math.isfinite(x) for x in numbers) or not all(
            math.isfinite(1 / letter.fraction) for _, word in self.words for letter in word.letters if letter.fraction
        ):
            raise InputError(
                f"The weights and fractions of `{self.name}` must be finite and not all but zero, got "
                f"{', '.join(map(repr, numbers))}. Correct them."
            )
        if not all(letter.operators for _, word in self.words for letter in word.letters):
            raise InputError(f"Every letter of `{self.name}` must name an operator. Leave empty letters out.")
        total = math.fsum(weight for weight, _ in self.words)
        if not math.isclose(total, 1.0, abs_tol=1e-12):
            raise InputError(f"The weights of the words of `{self.name}` must sum to 1, got {total}. Rescale them.")
        for _, word in self.words:
            for operator in {o for letter in word.letters for o in letter.operators} | set(range(self.num_operators)):
                self._check_operator(word, operator)
        if self.merge_ends:
            words = [word.letters for _, word in self.words]
            if len(words) != 1 or len(words[0]) < 2 or words[0][0].operators != words[0][-1].operators:
                raise InputError(
                    f"`merge_ends` of `{self.name}` needs a single word that begins and ends with the same operators. "
                    "Leave the flag out."
                )
        self._settle_order()

    def _settle_order(self) -> None:
        words = [(weight, [(x.operators, x.fraction) for x in word.letters]) for weight, word in self.words]
        order = algebraic_order(words, self.num_operators)
        if self.order is not None and not self.order <= order:
            raise InputError(
                f"The scheme `{self.name}` claims order {self.order:g}, its words have order {order:g}. Correct the "
                "fractions, or leave the order out."
            )
        object.__setattr__(self, "order", order if self.order is None else float(self.order))

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

    @property
    def is_symmetric(self) -> bool:
        """Whether a step back undoes a step, with exact flows: every word is a palindrome."""
        return len(self.words) == 1 and self.words[0][1].is_palindrome

    @property
    def has_negative_fractions(self) -> bool:
        """Whether some operator flows backwards in time within a step."""
        return any(letter.fraction < 0 for _, word in self.words for letter in word.letters)

    def describe(self, names: tuple[str, ...]) -> str:
        """Return the words in a reader's notation, such as ``attention/2 feedforward attention/2``.

        Args:
            names: a name for each operator.
        """
        texts = [" ".join(_describe(letter, names) for letter in word.letters) for _, word in self.words]
        if len(texts) == 1:
            return texts[0]
        signs = ["- " if weight < 0 else "+ " for weight, _ in self.words]
        parts = [f"{_number(abs(weight))} ({text})" for (weight, _), text in zip(self.words, texts, strict=True)]
        return " ".join(sign + part for sign, part in zip(signs, parts, strict=True)).removeprefix("+ ")


def _describe(letter: Letter, names: tuple[str, ...]) -> str:
    operators = "+".join(names[o] for o in sorted(letter.operators))
    operators = f"{{{operators}}}" if len(letter.operators) > 1 else operators
    if letter.fraction == 1:
        return operators
    inverse = round(1 / letter.fraction)
    if inverse and 1 / inverse == letter.fraction:
        return f"{operators}/{inverse}"
    return f"{operators}*{_number(letter.fraction)}"


def _number(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


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
    return Scheme("lie", num_operators, words, reference="Trotter (1959); arXiv:2510.03989, (3.5)-(3.10)")


def _lie_reversed(num_operators: int) -> Scheme:
    words = single_word(*((o, 1.0) for o in reversed(range(num_operators))))
    return Scheme("lie_reversed", num_operators, words, reference="Trotter (1959)")


_STRANG = "Strang, SIAM J. Numer. Anal. 5 (1968)"


def _palindrome(operators: Sequence[int], length: float = 1.0) -> list[tuple[int, float]]:
    """Return ``A/2 B/2 C B/2 A/2``, over `length` steps."""
    *outer, middle = operators
    half = [(o, length / 2) for o in outer]
    return [*half, (middle, length), *reversed(half)]


def _strang(num_operators: int) -> Scheme:
    return Scheme("strang", num_operators, single_word(*_palindrome(range(num_operators))), reference=_STRANG)


def _strang_reversed(num_operators: int) -> Scheme:
    words = single_word(*_palindrome(range(num_operators)[::-1]))
    return Scheme("strang_reversed", num_operators, words, reference=f"{_STRANG}; Macaron, arXiv:1906.02762")


def _strang_staggered(num_operators: int) -> Scheme:
    words = single_word(*_palindrome(range(num_operators)))
    return Scheme("strang_staggered", num_operators, words, merge_ends=num_operators > 1, reference=_STRANG)


def _parallel(num_operators: int) -> Scheme:
    words = ((1.0, Word((Letter(frozenset(range(num_operators)), 1.0),))),)
    return Scheme("parallel", num_operators, words, reference="no splitting; with Euler ViT-22B, arXiv:2302.05442")


def _swss(num_operators: int) -> Scheme:
    forward, backward = (build(num_operators).words[0][1] for build in (_lie, _lie_reversed))
    return Scheme("swss", num_operators, ((0.5, forward), (0.5, backward)), reference="Strang (1963), symmetrised")


def _yoshida4(num_operators: int) -> Scheme:
    outer = 1 / (2 - 2 ** (1 / 3))
    letters = [x for length in (outer, 1 - 2 * outer, outer) for x in _palindrome(range(num_operators), length)]
    return Scheme("yoshida4", num_operators, single_word(*letters), reference="Yoshida, Phys. Lett. A 150 (1990)")


SCHEMES: dict[str, Callable[[int], Scheme]] = {
    "lie": _lie,
    "lie_reversed": _lie_reversed,
    "strang": _strang,
    "strang_reversed": _strang_reversed,
    "strang_staggered": _strang_staggered,
    "parallel": _parallel,
    "swss": _swss,
    "yoshida4": _yoshida4,
}
"""Schemes by name, each for any number of operators (MATH.md section 5)."""


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
