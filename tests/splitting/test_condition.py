"""The order of a scheme, computed from its words and measured on matrix exponentials."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from ctt.config import InputError
from ctt.splitting import SCHEMES, Letter, Scheme, Word, algebraic_order, build_scheme, single_word

SUZUKI = 1 / (4 - 4 ** (1 / 3))


def interleave(first, second):
    """Return the word ``A a_1 F b_1 A a_2 ...``."""
    letters = [letter for a, b in zip(first, second, strict=True) for letter in ((0, a), (1, b))]
    return single_word(*(letter for letter in letters if letter[1] != 0))


def strang_steps(*lengths):
    return single_word(*(letter for s in lengths for letter in ((0, s / 2), (1, s), (0, s / 2))))


def blanes_moan():
    a = [0.0792036964311957, 0.353172906049774, -0.0420650803577195]
    b = [0.209515106613362, -0.143851773179818]
    a, b = [*a, 1 - 2 * sum(a)], [*b, 0.5 - sum(b)]
    return interleave([*a, *a[2::-1]], [*b, *b[::-1], 0])


def extrapolate(weight):
    """Return Richardson's weighted sum of two Strang steps of half the length and one of the whole."""
    return ((weight, strang_steps(0.5, 0.5)[0][1]), (1 - weight, strang_steps(1.0)[0][1]))


KNOWN = {
    "Ruth, IEEE Trans. Nucl. Sci. 30 (1983)": (interleave([7 / 24, 3 / 4, -1 / 24], [2 / 3, -2 / 3, 1]), 3),
    "Suzuki, Phys. Lett. A 146 (1990)": (strang_steps(SUZUKI, SUZUKI, 1 - 4 * SUZUKI, SUZUKI, SUZUKI), 4),
    "Blanes and Moan, J. Comput. Appl. Math. 142 (2002)": (blanes_moan(), 4),
    "Richardson": (extrapolate(4 / 3), 4),
    "Richardson with wrong weights": (extrapolate(1.3), 2),
    "two half steps": (strang_steps(0.5, 0.5), 2),
    "shifted halves": (single_word((0, 0.4), (1, 1.0), (0, 0.6)), 1),
}
known = pytest.mark.parametrize(("words", "order"), KNOWN.values(), ids=KNOWN)


def order_of(words, num_operators=2):
    return algebraic_order([(w, [(x.operators, x.fraction) for x in word.letters]) for w, word in words], num_operators)


def measure_order(words, num_operators=2):
    """The order of one step with exact flows of matrices that do not commute."""
    generator = np.random.default_rng(5)
    matrices = generator.standard_normal((num_operators, 4, 4))

    def error(h):
        step = sum(weight * multiply(word, h) for weight, word in words)
        return np.linalg.norm(step - expm(h * matrices.sum(axis=0)))

    def multiply(word, h):
        product = np.eye(4)
        for letter in word.letters:
            product = expm(h * letter.fraction * sum(matrices[o] for o in letter.operators)) @ product
        return product

    return math.log2(error(0.02) / error(0.01)) - 1


@pytest.mark.parametrize("num_operators", [2, 3])
@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("lie", 1),
        ("lie_reversed", 1),
        ("strang", 2),
        ("strang_reversed", 2),
        ("strang_staggered", 2),
        ("parallel", math.inf),
        ("swss", 2),
        ("yoshida4", 4),
    ],
)
def test_a_named_scheme_has_the_order_of_the_literature(name, num_operators, order):
    scheme = build_scheme(name, num_operators)
    assert scheme.order == order_of(scheme.words, num_operators) == order


@pytest.mark.parametrize("name", SCHEMES)
def test_a_single_operator_has_no_splitting_error(name):
    assert build_scheme(name, 1).order == math.inf


@known
def test_a_word_of_the_literature_has_its_order(words, order):
    assert order_of(words) == order
    assert Scheme("mine", 2, words).order == order


@known
def test_the_order_is_that_measured_on_matrix_exponentials(words, order):
    assert abs(measure_order(words) - order) < 0.15


@pytest.mark.parametrize("num_operators", [2, 3])
@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "parallel"])
def test_the_order_of_a_named_scheme_is_that_measured_on_matrix_exponentials(name, num_operators):
    scheme = build_scheme(name, num_operators)
    assert abs(measure_order(scheme.words, num_operators) - scheme.order) < 0.15


def test_a_set_of_all_operators_has_no_splitting_error_at_any_fractions():
    word = Word((Letter(frozenset({0, 1}), 0.3), Letter(frozenset({0, 1}), 0.7)))
    assert order_of(((1.0, word),)) == math.inf


def test_a_set_of_some_operators_is_split_from_the_rest():
    halves = Letter(frozenset({0, 2}), 0.5)
    assert order_of(((1.0, Word((halves, Letter(frozenset({1}), 1.0), halves))),), 3) == 2


@pytest.mark.parametrize("fractions", [[1.0, 0.9], [1.1, 1.0]])
def test_fractions_that_do_not_sum_to_one_have_order_zero(fractions):
    assert order_of(single_word(*enumerate(fractions))) == 0


@pytest.mark.parametrize(("name", "claim"), [("lie", 2), ("strang", 3), ("swss", 2.5), ("yoshida4", 5)])
def test_a_claim_above_the_order_of_the_words_is_refused(name, claim):
    words = build_scheme(name, 2).words
    with pytest.raises(InputError, match=rf"`mine` claims order {claim}, its words have order \d\. Correct the frac"):
        Scheme("mine", 2, words, order=claim)


def test_a_claim_below_the_order_of_the_words_is_kept():
    assert Scheme("mine", 2, build_scheme("strang", 2).words, order=1).order == 1


sizes = st.integers(-9, 9).filter(bool)
letters = st.lists(st.tuples(st.sampled_from((0, 1)), sizes), min_size=1, max_size=6)


def normalise(letters):
    """Return a word with each operator's fractions scaled to the sum one; None where that cannot be."""
    totals = [sum(size for operator, size in letters if operator == o) for o in (0, 1)]
    return single_word(*((o, size / totals[o]) for o, size in letters)) if all(totals) else None


words = letters.map(normalise).filter(bool)
palindromes = letters.map(lambda half: normalise([*half, *half[::-1]])).filter(bool)


@given(palindromes)
def test_a_palindrome_has_an_even_order(words):
    assert words[0][1].is_palindrome
    assert order_of(words) in (2, 4, 6, math.inf)


@given(words)
def test_a_word_whose_fractions_sum_to_one_is_at_least_first_order(words):
    assert order_of(words) >= 1


@given(words)
def test_a_reversed_word_has_the_same_order(words):
    ((_, word),) = words
    assert order_of(((1.0, Word(word.letters[::-1])),)) == order_of(words)


@given(words)
def test_splitting_a_letter_in_two_changes_no_order(words):
    ((_, word),) = words
    halves = [Letter(x.operators, x.fraction / 2) for x in word.letters for _ in range(2)]
    assert order_of(((1.0, Word(tuple(halves))),)) == order_of(words)


@given(words)
def test_the_mean_of_a_word_and_its_reverse_is_at_least_second_order(words):
    ((_, word),) = words
    assert order_of(((0.5, word), (0.5, Word(word.letters[::-1])))) >= 2


@given(words)
def test_swapping_the_operators_changes_no_order(words):
    ((_, word),) = words
    swapped = tuple(Letter(frozenset(1 - o for o in x.operators), x.fraction) for x in word.letters)
    assert order_of(((1.0, Word(swapped)),)) == order_of(words)
