"""A scheme as text: ``attention/2 feedforward attention/2``, the notation of `Scheme.describe`."""

import math
import re
from collections.abc import Sequence

from ctt.config.error import InputError, suggest
from ctt.splitting.scheme import Letter, Scheme, Word

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_SUMMAND = re.compile(rf"\s*(?P<sign>[+-]?)\s*(?P<weight>{_NUMBER})\s*\((?P<letters>[^()]*)\)\s*")
_LETTER = re.compile(rf"(?P<names>\{{[^{{}}]*\}}|[^\s*/{{}}]+)(?:(?P<sign>[*/])(?P<number>{_NUMBER}))?")

_HELP = "Write letters such as attention/2, feedforward*0.25 or {attention+feedforward}, with spaces between"


def parse_scheme(text: str, names: Sequence[str], *, name: str = "word") -> Scheme:
    """Return the scheme that a text describes.

    A letter is an operator's name, or several as ``{a+b}`` that flow together, with its fraction as ``/2`` or
    ``*0.5`` (1 if left out). A word is letters in the order in which they act. Several words are a weighted sum,
    ``0.5 (a b) + 0.5 (b a)``.

    Args:
        text: the words.
        names: a name for each operator, in their order.
        name: what messages call the scheme.

    Raises:
        InputError: the text cannot be read, names no such operator, or its words are no scheme.

    Example:
        >>> parse_scheme("f/2 g f/2", ("f", "g")).order
        2.0
        >>> parse_scheme("0.5 (f g) + 0.5 (g f)", ("f", "g")).describe(("f", "g"))
        '0.5 (f g) + 0.5 (g f)'
    """
    summands = _split_sum(text)
    words = tuple(
        (weight, Word(tuple(_read_letter(t, names) for t in letters.split()))) for weight, letters in summands
    )
    for _, word in words:
        for index, operator in enumerate(names):
            total = word.total(index)
            if not math.isclose(total, 1.0, abs_tol=1e-12):
                raise InputError(
                    f"`splitting.word` must give {operator} fractions that sum to 1 in each word, got {total:g}. "
                    f"{_HELP}."
                )
    return Scheme(name, len(names), words, reference="of the user's own")


def _split_sum(text: str) -> list[tuple[float, str]]:
    if "(" not in text and ")" not in text:
        return [(1.0, text)]
    summands: list[tuple[float, str]] = []
    position = 0
    while position < len(text):
        match = _SUMMAND.match(text, position)
        if match is None or (summands and not match["sign"]):
            raise InputError(
                f"`splitting.word` must be a word or a weighted sum of words, got {text!r}. Write it like "
                "`0.5 (attention feedforward) + 0.5 (feedforward attention)`."
            )
        sign = -1.0 if match["sign"] == "-" else 1.0
        summands.append((sign * float(match["weight"]), match["letters"]))
        position = match.end()
    return summands


def _read_letter(text: str, names: Sequence[str]) -> Letter:
    match = _LETTER.fullmatch(text)
    if match is None:
        raise InputError(f"`splitting.word` must be made of letters, got {text!r}. {_HELP}.")
    inside = match["names"]
    parts = inside[1:-1].split("+") if inside.startswith("{") else [inside]
    operators = [_find(part.strip(), names) for part in parts]
    if len(set(operators)) != len(operators):
        raise InputError(f"`splitting.word` must name an operator once a letter, got {text!r}. Name it once.")
    number = float(match["number"] or 1.0)
    if match["sign"] == "/" and number == 0:
        raise InputError(f"`splitting.word` must not divide by zero, got {text!r}. {_HELP}.")
    fraction = 1 / number if match["sign"] == "/" else number
    if fraction == 0 or not math.isfinite(fraction) or not math.isfinite(1 / fraction):
        raise InputError(f"`splitting.word` must have finite fractions other than 0, got {text!r}. Leave it out.")
    return Letter(frozenset(operators), fraction)


def _find(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise InputError(f"`splitting.word` names the operator `{name}`: {suggest(name, names)}. Set model.operators.")
    return tuple(names).index(name)
