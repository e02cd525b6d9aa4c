import math

import pytest

from ctt.config import InputError
from ctt.splitting import SCHEMES, Letter, Scheme, Word, build_scheme, build_substep, single_word

NAMES = ("A", "F", "G")


def word(*letters):
    return Word(tuple(Letter(frozenset(operators), fraction) for operators, fraction in letters))


@pytest.mark.parametrize(
    ("name", "num_operators", "notation"),
    [
        ("lie", 1, "A"),
        ("lie", 2, "A F"),
        ("lie", 3, "A F G"),
        ("lie_reversed", 2, "F A"),
        ("lie_reversed", 3, "G F A"),
        ("strang", 1, "A"),
        ("strang", 2, "A/2 F A/2"),
        ("strang", 3, "A/2 F/2 G F/2 A/2"),
        ("strang_reversed", 2, "F/2 A F/2"),
        ("strang_reversed", 3, "G/2 F/2 A F/2 G/2"),
        ("strang_staggered", 1, "A"),
        ("strang_staggered", 2, "A/2 F A/2"),
        ("strang_staggered", 3, "A/2 F/2 G F/2 A/2"),
        ("parallel", 1, "A"),
        ("parallel", 2, "{A+F}"),
        ("parallel", 3, "{A+F+G}"),
        ("swss", 2, "0.5 (A F) + 0.5 (F A)"),
        ("swss", 3, "0.5 (A F G) + 0.5 (G F A)"),
        ("yoshida4", 1, "A*1.3512071919596578 A*-1.7024143839193155 A*1.3512071919596578"),
    ],
)
def test_a_named_scheme_is_the_word_of_the_literature(name, num_operators, notation):
    assert build_scheme(name, num_operators).describe(NAMES[:num_operators]) == notation


def test_the_triple_jump_has_the_coefficients_of_yoshida():
    # Phys. Lett. A 150 (1990), equation (2.11): x0 = -2^(1/3) / (2 - 2^(1/3)), x1 = 1 / (2 - 2^(1/3)).
    x0, x1 = -(2 ** (1 / 3)) / (2 - 2 ** (1 / 3)), 1 / (2 - 2 ** (1 / 3))
    letters = build_scheme("yoshida4", 2).words[0][1].letters
    expected = [half for x in (x1, x0, x1) for half in (x / 2, x, x / 2)]
    assert [letter.fraction for letter in letters] == pytest.approx(expected, rel=1e-14)
    assert [set(letter.operators) for letter in letters] == [{0}, {1}, {0}] * 3


@pytest.mark.parametrize("num_operators", [1, 2, 3, 5])
@pytest.mark.parametrize("name", SCHEMES)
def test_in_every_word_of_a_named_scheme_every_operator_flows_over_the_whole_step(name, num_operators):
    totals = [word.total(o) for _, word in build_scheme(name, num_operators).words for o in range(num_operators)]
    assert totals == pytest.approx([1.0] * len(totals), abs=1e-15)


@pytest.mark.parametrize("name", SCHEMES)
def test_only_strang_and_what_is_made_of_it_and_what_does_not_split_are_symmetric(name):
    is_symmetric = name in ("strang", "strang_reversed", "strang_staggered", "parallel", "yoshida4")
    scheme = build_scheme(name, 3)
    assert scheme.is_symmetric is is_symmetric
    assert all(word.is_palindrome is is_symmetric for _, word in scheme.words)


@pytest.mark.parametrize("name", SCHEMES)
def test_only_yoshida4_has_negative_fractions(name):
    assert build_scheme(name, 2).has_negative_fractions is (name == "yoshida4")


@pytest.mark.parametrize("num_operators", [1, 2, 3])
@pytest.mark.parametrize("name", SCHEMES)
def test_only_the_staggered_scheme_merges_its_ends_where_there_are_two(name, num_operators):
    assert build_scheme(name, num_operators).merge_ends is (name == "strang_staggered" and num_operators > 1)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_named_scheme_says_where_it_comes_from(name):
    scheme = build_scheme(name, 2)
    assert scheme.name == name
    assert scheme.reference


@pytest.mark.parametrize("fraction", [0.5, 1.1, 0.0, -1.0])
def test_fractions_that_do_not_sum_to_one_are_refused(fraction):
    with pytest.raises(InputError, match=r"`mine` the fractions of operator 1 must sum to 1, got .*Rescale"):
        Scheme("mine", 2, single_word((0, 1.0), (1, fraction)), order=1)


def test_an_operator_that_is_left_out_is_refused():
    with pytest.raises(InputError, match=r"fractions of operator 1 must sum to 1, got 0"):
        Scheme("mine", 2, single_word((0, 1.0)), order=1)


def test_fractions_are_checked_in_every_word():
    words = ((0.5, word(({0}, 1.0), ({1}, 1.0))), (0.5, word(({0}, 1.0), ({1}, 0.9))))
    with pytest.raises(InputError, match=r"fractions of operator 1 must sum to 1, got 0\.9"):
        Scheme("mine", 2, words, order=1)


@pytest.mark.parametrize("weights", [(0.5, 0.4), (1.0, 1.0)])
def test_weights_that_do_not_sum_to_one_are_refused(weights):
    words = tuple((weight, word(({0}, 1.0))) for weight in weights)
    with pytest.raises(InputError, match=r"weights of the words of `mine` must sum to 1, got .*Rescale"):
        Scheme("mine", 1, words, order=1)


def test_a_scheme_without_words_is_refused():
    with pytest.raises(InputError, match="must sum to 1, got 0"):
        Scheme("mine", 1, (), order=1)


@pytest.mark.parametrize("index", [-1, 2])
def test_an_operator_out_of_range_is_refused(index):
    with pytest.raises(InputError, match=rf"must name operators 0 to 1, got {index}"):
        Scheme("mine", 2, single_word((0, 1.0), (1, 1.0), (index, 1.0)), order=1)


@pytest.mark.parametrize(
    "words",
    [
        single_word((0, 1.0), (1, 1.0)),
        ((0.5, word(({0}, 0.5), ({1}, 1.0), ({0}, 0.5))), (0.5, word(({0}, 0.5), ({1}, 1.0), ({0}, 0.5)))),
        ((1.0, word(({0, 1}, 0.5), ({1}, 0.5), ({0}, 0.5))),),
        ((1.0, word(({0, 1}, 1.0))),),
    ],
    ids=["different ends", "two words", "different sets", "one letter"],
)
def test_ends_that_cannot_merge_are_refused(words):
    with pytest.raises(InputError, match=r"`merge_ends` of `mine` needs a single word that begins and ends"):
        Scheme("mine", 2, words, order=1, merge_ends=True)


def test_negative_fractions_are_allowed():
    assert Scheme("mine", 1, single_word((0, 1.5), (0, -0.5)), order=1).num_letters == 2


def test_a_scheme_of_ones_own_is_returned_as_it_is():
    scheme = Scheme("mine", 2, single_word((1, 1.0), (0, 1.0)), order=1)
    assert build_scheme(scheme, 2) is scheme


def test_a_scheme_for_another_number_of_operators_is_refused():
    scheme = Scheme("mine", 2, single_word((0, 1.0), (1, 1.0)), order=1)
    with pytest.raises(InputError, match="`mine` splits 2 operators, got 3"):
        build_scheme(scheme, 3)


def test_no_operator_is_refused():
    with pytest.raises(InputError, match="at least one operator, got none"):
        build_scheme("lie", 0)


@pytest.mark.parametrize(("typed", "nearest"), [("strnag", "strang"), ("lei", "lie"), ("lie_reverse", "lie_reversed")])
def test_an_unknown_scheme_shows_the_nearest(typed, nearest):
    with pytest.raises(InputError, match=rf"got '{typed}': did you mean `{nearest}`\? Known: .*strang"):
        build_scheme(typed, 2)


@pytest.mark.parametrize(("typed", "nearest"), [("eular", "euler"), ("midpiont", "midpoint")])
def test_an_unknown_substep_shows_the_nearest(typed, nearest):
    with pytest.raises(InputError, match=rf"got '{typed}': did you mean `{nearest}`\? Known: .*midpoint"):
        build_substep(typed)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 5e-324])
def test_a_fraction_that_is_no_usable_number_is_refused(value):
    with pytest.raises(
        InputError, match=r"weights and fractions of `mine` must be finite and not all but zero.*Correct"
    ):
        Scheme("mine", 2, single_word((0, 1.0), (1, value)))


@pytest.mark.parametrize("weights", [(math.nan, 1.0), (math.inf, -math.inf)])
def test_a_weight_that_is_no_usable_number_is_refused(weights):
    words = tuple((weight, word(({0}, 1.0))) for weight in weights)
    with pytest.raises(InputError, match=r"weights and fractions of `mine` must be finite"):
        Scheme("mine", 1, words)


def test_an_order_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="claims order nan"):
        Scheme("mine", 2, single_word((0, 1.0), (1, 1.0)), order=math.nan)


def test_a_letter_without_operators_is_refused():
    with pytest.raises(InputError, match=r"Every letter of `mine` must name an operator"):
        Scheme("mine", 1, ((1.0, word(({0}, 1.0), ((), 0.5))),))
