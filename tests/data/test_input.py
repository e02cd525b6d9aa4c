import jax
import pytest

from ctt.config import DataConfig
from ctt.data import choose_input, find_device_bytes

GIB = 2**30


@pytest.mark.parametrize(
    ("num_bytes", "device_bytes", "expected"),
    [
        (4 * GIB, 16 * GIB, "resident"),
        (4 * GIB + 1, 16 * GIB, "stream"),
        (4 * GIB, None, "resident"),
        (4 * GIB + 1, None, "stream"),
        (1, 0, "stream"),
    ],
)
def test_auto_keeps_on_the_device_what_takes_a_quarter_of_it(num_bytes, device_bytes, expected):
    assert choose_input(DataConfig(), num_bytes, device_bytes) == expected


@pytest.mark.parametrize("name", ["resident", "stream"])
@pytest.mark.parametrize("num_bytes", [0, 2**50])
def test_a_choice_is_obeyed(name, num_bytes):
    assert choose_input(DataConfig(input=name), num_bytes, 16 * GIB) == name


def test_a_device_tells_its_memory_or_nothing():
    found = find_device_bytes()
    assert found is None if jax.default_backend() == "cpu" else found > GIB
