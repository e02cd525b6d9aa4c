"""Schemes as text: what is read, what is written, and what is refused."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctt.config import InputError
from ctt.splitting import SCHEMES, Letter, Scheme, Word, build_scheme, parse_scheme

NAMES = ("mix", "act", "heat")


def read_letters(text, num_operators=2):
    ((weight, word),) = parse_scheme(text, NAMES[:num_operators]).words
    assert weight == 1
    return [(set(letter.operators), letter.fraction) for letter in word.letters]


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("mix act", [({0}, 1), ({1}, 1)]),
        ("act mix", [({1}, 1), ({0}, 1)]),
        ("mix/2 act mix/2", [({0}, 0.5), ({1}, 1), ({0}, 0.5)]),
        ("mix*0.5 act mix*0.5", [({0}, 0.5), ({1}, 1), ({0}, 0.5)]),
        ("mix*.25 act mix/4. mix*5e-1", [({0}, 0.25), ({1}, 1), ({0}, 0.25), ({0}, 0.5)]),
        ("mix*1.5 act mix*-0.5", [({0}, 1.5), ({1}, 1), ({0}, -0.5)]),
        ("mix*+1.5E+0 act mix/-2", [({0}, 1.5), ({1}, 1), ({0}, -0.5)]),
        ("{mix+act}", [({0, 1}, 1)]),
        ("{act+mix}/2 {mix+act}*0.5", [({0, 1}, 0.5), ({0, 1}, 0.5)]),
        ("  mix \t act\n", [({0}, 1), ({1}, 1)]),
    ],
)
def test_a_word_is_its_letters_in_the_order_in_which_they_act(text, letters):
    assert read_letters(text) == letters


def test_a_set_may_stand_beside_other_operators():
    assert read_letters("{mix+heat}/2 act {mix+heat}/2", 3) == [({0, 2}, 0.5), ({1}, 1), ({0, 2}, 0.5)]


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("0.5 (mix act) + 0.5 (act mix)", [0.5, 0.5]),
        ("0.5(mix act)+.5(act mix)", [0.5, 0.5]),
        ("1.5 (mix act) + -0.5 (act mix)", [1.5, -0.5]),
        ("1 (mix act)", [1.0]),
        ("2.5e-1 (mix act) + 0.25 (act mix) + 0.5 (mix/2 act mix/2)", [0.25, 0.25, 0.5]),
    ],
)
def test_words_in_brackets_are_a_weighted_sum(text, weights):
    assert [weight for weight, _ in parse_scheme(text, NAMES[:2]).words] == weights


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("act mix", 1),
        ("mix/2 act mix/2", 2),
        ("{mix+act}", math.inf),
        ("0.5 (mix act) + 0.5 (act mix)", 2),
        ("2 (mix/2 act mix/2) + -1 (mix/2 act mix/2)", 2),
    ],
)
def test_the_order_is_computed_from_the_words(text, order):
    assert parse_scheme(text, NAMES[:2]).order == order


def test_a_scheme_from_text_has_the_name_that_messages_call_it():
    assert parse_scheme("mix act", NAMES[:2]).name == "word"
    with pytest.raises(InputError, match="The weights of the words of `mine` must sum to 1"):
        parse_scheme("0.5 (mix act)", NAMES[:2], name="mine")


@pytest.mark.parametrize("num_operators", [1, 2, 3])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_named_scheme_is_read_from_its_description(name, num_operators):
    scheme, names = build_scheme(name, num_operators), NAMES[:num_operators]
    assert parse_scheme(scheme.describe(names), names).words == scheme.words


@pytest.mark.parametrize(
    "text",
    [
        "mix act",
        "mix/2 act mix/2",
        "mix/3 act/4 mix/3 act*0.75 mix/3",
        "mix*1.5 act mix/-2",
        "{mix+act}/2 {mix+act}/2",
        "0.25 (mix act) + 0.75 (act mix)",
    ],
)
def test_a_description_is_the_text_that_was_read(text):
    assert parse_scheme(text, NAMES[:2]).describe(NAMES[:2]) == text


def complete(letters):
    """Return the letters, with one more for each operator so that the hundredths sum to a hundred."""
    rest = [100 - sum(size for operators, size in letters if o in operators) for o in range(3)]
    return [*letters, *((frozenset({o}), size) for o, size in enumerate(rest) if size)]


sets = st.frozensets(st.integers(0, 2), min_size=1)
hundredths = st.lists(st.tuples(sets, st.integers(-250, 250).filter(bool)), max_size=6).map(complete)


@given(hundredths)
def test_fractions_of_up_to_six_digits_survive_the_way_through_text(letters):
    word = Word(tuple(Letter(operators, size / 100) for operators, size in letters))
    scheme = Scheme("mine", 3, ((1.0, word),))
    assert parse_scheme(scheme.describe(NAMES), NAMES).words == scheme.words


@given(st.text(alphabet="ab{}+*/()0.5e- ", max_size=24))
def test_any_text_is_a_scheme_or_an_input_error(text):
    with contextlib.suppress(InputError):
        assert parse_scheme(text, ("a", "b")).num_operators == 2


LETTERS = r"must be made of letters, got .*Write letters such as attention/2"
SUMS = r"must be a word or a weighted sum of words, got .*Write it like"
FRACTIONS = r"fractions that sum to 1 in each word, got .*Write letters"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mix act)", SUMS),
        ("0.5 (mix act) 0.5 (act mix)", SUMS),
        ("0.5 (mix act) + 0.5 (act mix) +", SUMS),
        ("mix+act", "names the operator `mix.act`"),
        ("(mix act)", SUMS),
        ("0.5 (mix act", SUMS),
        ("0.5 ((mix act)) + 0.5 (act mix)", SUMS),
        ("half (mix act) + 0.5 (act mix)", SUMS),
        ("nan (mix act)", SUMS),
        ("0.5 (mix act) x 0.5 (act mix)", SUMS),
        ("0.5 (mix act) + 0.4 (act mix)", r"weights of the words of `word` must sum to 1, got 0\.9\. Rescale them"),
        ("1e400 (mix act)", r"must be finite and not all but zero, got inf.*Correct them"),
        ("{mix+act", LETTERS),
        ("mix+act}", LETTERS),
        ("{mix+act}}", LETTERS),
        ("{{mix+act}}", LETTERS),
        ("{mix act}", LETTERS),
        ("{}/2 mix act", r"names the operator ``: Known: mix, act\. Set model\.operators"),
        ("mix/ act", LETTERS),
        ("mix /2 act mix/2", LETTERS),
        ("mix*nan act", LETTERS),
        ("mix*inf act", LETTERS),
        ("mix*act", LETTERS),
        ("mix/2/2 act", LETTERS),
        ("2*mix act", LETTERS),
        ("mix*1e400 act", r"must have finite fractions other than 0, got 'mix\*1e400'"),
        ("mix/1e400 act", r"must have finite fractions other than 0, got .*Leave it out"),
        ("mix/1e-320 act", r"must have finite fractions other than 0"),
        ("mix*0 mix act", r"must have finite fractions other than 0, got 'mix\*0'\. Leave it out"),
        ("mix/0 act", r"must not divide by zero, got 'mix/0'\. Write letters"),
        ("mix/-0.0 act", r"must not divide by zero"),
        ("{mix+mix} act", r"must name an operator once a letter, got '{mix\+mix}'\. Name it once"),
        ("mxi act", r"names the operator `mxi`: did you mean `mix`\? Known: mix, act\. Set model\.operators"),
        ("{mix+atc}", r"names the operator `atc`: did you mean `act`\?"),
        ("mix act heat", r"names the operator `heat`: .*Known: mix, act\."),
        ("", FRACTIONS),
        ("   ", FRACTIONS),
        ("0.5 () + 0.5 (mix act)", FRACTIONS),
        ("mix", FRACTIONS),
        ("mix/2 act", FRACTIONS),
        ("mix act mix", FRACTIONS),
        ("mix/2 act mix/3", FRACTIONS),
        ("0.5 (mix act) + 0.5 (act)", FRACTIONS),
    ],
)
def test_malformed_text_is_refused_with_the_way_out(text, message):
    with pytest.raises(InputError, match=message):
        parse_scheme(text, NAMES[:2])
