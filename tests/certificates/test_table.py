"""The table of orders of MATH.md section 5, every cell."""

import pytest

from ctt.certificates.table import ORDERS, check_table

CELLS = [(scheme, substep, placement) for (scheme, substep), row in ORDERS.items() for placement in row]

# As MATH.md section 5 measured them; the cell of strang_staggered and post is not in its table.
MEASURED = {
    ("lie", "euler"): (1.00, 1.00, 1.00),
    ("lie", "midpoint"): (1.02, 1.00, 1.02),
    ("strang", "euler"): (1.01, 1.01, 1.03),
    ("strang", "midpoint"): (2.00, 1.00, 2.00),
    ("strang_staggered", "midpoint"): (2.00, None, 2.00),
    ("swss", "midpoint"): (2.00, 0.98, 2.00),
    ("parallel", "midpoint"): (2.00, 0.97, 2.00),
    ("yoshida4", "rk4"): (4.00, 1.00, 4.00),
}


@pytest.fixture(scope="module")
def checks():
    return {(c.values["scheme"], c.values["substep"], c.values["placement"]): c for c in check_table()}


def test_the_table_has_the_rows_of_its_source():
    assert list(ORDERS) == list(MEASURED)


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_a_cell_of_the_table_is_reproduced(checks, cell):
    check = checks[cell]
    expected = MEASURED[cell[:2]][("pre", "post", "tangent").index(cell[2])] or 1.0
    assert check.outcome == "holds", check.summary
    assert abs(check.values["slopes"][-1] - round(expected)) <= 0.1
    assert len(check.values["steps"]) >= 4


def test_post_with_second_order_substeps_says_why_it_is_first_order(checks):
    check = checks["strang", "midpoint", "post"]
    assert "projection bolted on after each substep caps every scheme at order 1" in check.reason
