"""Three outcomes from errors on finer and finer grids."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctt.certificates.check import check_bound
from ctt.certificates.order import Observation, observe

GRIDS = (4, 8, 16, 32)


def errors(order, *, grids=GRIDS, size=1.0):
    return Observation(tuple(grids), tuple(size * float(n) ** -order for n in grids))


@pytest.mark.parametrize("order", [1, 2, 4])
def test_errors_of_the_promised_order_hold(order):
    assert errors(order).judge(order) == "holds"


@pytest.mark.parametrize(("order", "promised"), [(1, 2), (1.8, 2), (3, 4), (0, 1)])
def test_errors_of_a_lower_order_do_not_hold(order, promised):
    assert errors(order).judge(promised) == "does not hold"


def test_a_higher_order_than_promised_holds():
    assert errors(3).judge(2) == "holds"


@pytest.mark.parametrize("slope", [1.91, 2.0, 2.09])
def test_the_tolerance_is_a_tenth(slope):
    assert errors(slope).judge(2) == "holds"


def test_three_grids_resolve_nothing():
    assert errors(2, grids=(4, 8, 16)).judge(2) == "not resolved"


def test_slopes_that_disagree_resolve_nothing():
    assert Observation(GRIDS, (1.0, 0.5, 0.25, 0.05)).judge(2) == "not resolved"


def test_slopes_on_their_way_to_the_promise_resolve_nothing():
    slopes = (1.4, 1.65, 1.8)
    values = np.cumprod([1.0, *(2.0**-s for s in slopes)])
    assert Observation(GRIDS, tuple(values)).judge(2) == "not resolved"


def test_an_exact_scheme_holds_whatever_is_promised():
    assert Observation((4,), (1e-16,), is_exact=True).judge(np.inf) == "holds"


def test_errors_where_exactness_is_promised_do_not_hold():
    assert errors(2).judge(np.inf) == "does not hold"


def test_with_kinks_the_fit_over_many_grids_decides():
    scattered = [2.0 ** -(2 * k) * (1.3 if k % 2 else 1.0) for k in range(8)]
    observed = Observation(tuple(2**k for k in range(8)), tuple(scattered))
    assert (observed.judge(2, is_rough=True), observed.judge(3, is_rough=True)) == ("holds", "does not hold")


def test_with_kinks_a_few_grids_resolve_nothing():
    assert errors(2).judge(2, is_rough=True) == "not resolved"


def observe_law(law, grids=(2, 4, 8, 16, 32, 64)):
    calls = []

    def solve(u0, steps):
        calls.append(steps)
        return u0 + law(steps)

    return observe(solve, jnp.zeros(1), jnp.zeros(1) + 0.0, grids), calls


def test_grids_are_refined_until_the_slope_settles():
    observed, calls = observe_law(lambda n: n**-2.0)
    assert (observed.steps, calls) == ((2, 4, 8, 16), [2, 4, 8, 16])


def test_grids_are_refined_further_where_the_slope_still_moves():
    observed, _ = observe_law(lambda n: n**-1.0 + 8 * n**-2.0)
    assert len(observed.steps) > 4


def test_round_off_is_not_taken_for_an_order():
    def solve(u0, steps):
        return u0 + (1e-4 if steps < 8 else 1e-15)

    observed = observe(solve, jnp.ones(1), jnp.ones(1), (2, 4, 8, 16))
    assert (observed.steps, observed.judge(2)) == ((2, 4), "not resolved")


def test_a_scheme_that_blows_up_on_coarse_grids_is_seen_on_finer_ones():
    observed, _ = observe_law(lambda n: np.nan if n < 8 else n**-1.0, (2, 4, 8, 16, 32, 64))
    assert observed.steps == (8, 16, 32, 64)


@pytest.mark.parametrize(
    ("received", "outcome"),
    [(0.5, "holds"), (1.0, "holds"), (1.5, "does not hold"), (np.nan, "does not hold"), (-1.0, "holds")],
)
def test_a_bound_holds_or_does_not(received, outcome):
    assert check_bound("difference", received, 1.0).outcome == outcome
