import pytest

from ctt.config import InputError
from ctt.config.error import suggest


def test_wrong_input_is_a_value_error():
    assert issubclass(InputError, ValueError)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("strnag", "did you mean `strang`? Known: lie, strang"),
        ("zzz", "Known: lie, strang"),
        ("", "Known: lie, strang"),
    ],
)
def test_a_suggestion_lists_the_known_names_and_the_nearest(typed, text):
    assert suggest(typed, ["lie", "strang"]) == text
