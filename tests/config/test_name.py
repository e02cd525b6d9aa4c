"""The names that the command line offers are those that the code implements."""

import pytest

from ctt.adjoints import GRADIENT_METHODS
from ctt.config import name
from ctt.controls import BASES
from ctt.dynamics import PLACEMENTS
from ctt.dynamics.feedforward import ACTIVATIONS
from ctt.models import MODELS
from ctt.splitting import SCHEMES, SUBSTEPS


@pytest.mark.parametrize(
    ("table", "declared"),
    [
        pytest.param(SCHEMES, name.SCHEMES, id="schemes"),
        pytest.param(SUBSTEPS, name.SUBSTEPS, id="substeps"),
        pytest.param(PLACEMENTS, name.PLACEMENTS, id="placements"),
        pytest.param(ACTIVATIONS, name.ACTIVATIONS, id="activations"),
        pytest.param(BASES, name.BASES, id="bases"),
        pytest.param(GRADIENT_METHODS, name.GRADIENT_METHODS, id="gradient methods"),
        pytest.param(MODELS, name.MODELS, id="models"),
    ],
)
def test_a_table_has_exactly_the_declared_names(table, declared):
    assert tuple(table) == declared


@pytest.mark.parametrize("method", SUBSTEPS.values(), ids=lambda method: method.name)
def test_a_substep_goes_by_its_own_name(method):
    assert SUBSTEPS[method.name] is method


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_goes_by_its_own_name(scheme):
    assert SCHEMES[scheme](2).name == scheme
