"""The order of a configured model: what is promised, what is seen, and what is refused."""

import dataclasses

import pytest
from jax import numpy as jnp

from ctt.certificates import certify_order
from ctt.certificates.order import shrink
from ctt.config import InputError
from ctt.splitting import SUBSTEPS

TANGENT = {"normalization.placement": "tangent", "normalization.affine": "none"}
POST = {"normalization.placement": "post", "normalization.affine": "none"}
MIDPOINT = {"splitting.scheme": "strang", "splitting.substep": "midpoint"}
SCALAR = {"normalization.affine": "scalar", "normalization.shared": True}

CASES = {
    "lie + euler, pre": ({}, 1, "scheme lie has order 1"),
    "strang + midpoint, pre": (MIDPOINT, 2, "scheme strang has order 2"),
    "strang + euler, pre": ({"splitting.scheme": "strang"}, 1, "substep euler of attention has order 1"),
    "strang + midpoint, post": (MIDPOINT | POST, 1, "post bolts a projection on after each substep"),
    "strang + midpoint, post on moving sets": (MIDPOINT | POST | SCALAR, 1, "post bolts a projection on"),
    "strang + midpoint, tangent on moving sets": (MIDPOINT | TANGENT | SCALAR, 2, "scheme strang has order 2"),
    "strang_staggered + midpoint, pre": (
        MIDPOINT | {"splitting.scheme": "strang_staggered"},
        2,
        "scheme strang_staggered has order 2",
    ),
    "a word of one's own": (
        {
            "splitting.scheme": "word",
            "splitting.word": "feedforward/2 attention feedforward/2",
            "splitting.substep": "heun",
        },
        2,
        "scheme word has order 2",
    ),
    "four operators, two exact": (
        MIDPOINT
        | {
            "model.operators": ("attention", "feedforward", "heat", "skew"),
            "splitting.operator_substeps": ("midpoint", "midpoint", "exact", "exact"),
        },
        2,
        "scheme strang has order 2",
    ),
    "fewer knots than steps": (MIDPOINT | {"controls.knots": 1}, 2, "scheme strang has order 2"),
    "post without a limit, if asked for": (
        {"normalization.placement": "post", "splitting.allow_reduced_order": True},
        0,
        "no limit as the step goes to 0",
    ),
    "yoshida4 with post, if asked for": (
        POST | {"splitting.scheme": "yoshida4", "splitting.allow_reduced_order": True},
        1,
        "substep euler of attention has order 1",
    ),
}


@pytest.mark.parametrize(("overrides", "promised", "reason"), CASES.values(), ids=CASES.keys())
def test_a_configured_model_keeps_its_promise_and_says_what_limits_it(tiny_config, overrides, promised, reason):
    check = certify_order(tiny_config(overrides))
    assert (check.outcome, check.values["promised"]) == ("holds", promised), check.summary
    assert reason in check.reason


def test_the_seen_order_of_strang_with_midpoints_is_two(tiny_config):
    assert abs(certify_order(tiny_config(MIDPOINT)).values["slopes"][-1] - 2) <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("placement", [{}, TANGENT], ids=["pre", "tangent"])
def test_yoshida_with_runge_kutta_is_fourth_order(tiny_config, placement):
    check = certify_order(tiny_config({**placement, "splitting.scheme": "yoshida4", "splitting.substep": "rk4"}))
    assert (check.outcome, check.values["promised"]) == ("holds", 4), check.summary


def test_an_exact_discretisation_is_seen_to_be_exact(tiny_config):
    check = certify_order(tiny_config({"model.operators": ("skew",), "splitting.substep": "exact"}))
    assert (check.outcome, check.values["promised"], len(check.values["steps"])) == ("holds", None, 1)


def test_a_cayley_transform_is_seen_to_be_second_order(tiny_config):
    overrides = {"model.operators": ("skew",), "splitting.substep": "exact", "model.skew_flow": "cayley"}
    check = certify_order(tiny_config(overrides))
    assert (check.outcome, check.values["promised"]) == ("holds", 2)
    assert "own flow of skew has order 2" in check.reason


def test_relu_caps_the_promise_at_two(tiny_config):
    overrides = {"model.activation": "relu", "splitting.scheme": "parallel", "splitting.substep": "rk4"}
    check = certify_order(tiny_config(overrides))
    assert (check.outcome, check.values["promised"]) == ("holds", 2), check.summary
    assert "ReLU has a kink" in check.reason


def test_a_substep_that_is_not_what_it_claims_does_not_hold(tiny_config, monkeypatch):
    false = dataclasses.replace(SUBSTEPS["midpoint"], advance=SUBSTEPS["euler"].advance)
    monkeypatch.setitem(SUBSTEPS, "midpoint", false)
    check = certify_order(tiny_config(MIDPOINT))
    assert (check.outcome, check.values["promised"]) == ("does not hold", 2)


def test_a_loop_that_is_not_the_scheme_does_not_hold(tiny_config, monkeypatch):
    from ctt.models.evolution import Evolution

    original = Evolution.__call__

    def drift(self, u0, **options):
        u, costs = original(self, u0, **options)
        return u + jnp.asarray(1e-6, u.dtype), costs

    monkeypatch.setattr(Evolution, "__call__", drift)
    check = certify_order(tiny_config({}))
    assert check.outcome == "does not hold"
    assert "own loop differs from its scheme" in check.reason


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"normalization.placement": "post"}, "applied once a substep"),
        ({"normalization.placement": "post", "normalization.affine": "scalar"}, "limit that depends on the scheme"),
        (
            {
                "splitting.scheme": "literal",
                "normalization.placement": "post",
                "model.activation": "relu",
                "model.feedforward_width": 8,
            },
            "does not tend to the identity",
        ),
    ],
    ids=["elementwise", "unshared", "literal"],
)
def test_what_has_no_limit_is_refused_a_certificate_with_the_reason_and_the_way_out(tiny_config, overrides, reason):
    with pytest.raises(InputError, match=f"{reason}.*Choose --"):
        certify_order(tiny_config(overrides))


def test_a_large_model_is_certified_by_a_small_one_of_its_kind(tiny_config):
    config = tiny_config(
        {
            "model.width": 256,
            "model.num_heads": 8,
            "model.feedforward_width": 1024,
            "model.dropout": 0.1,
            "splitting.steps": 24,
            "controls.knots": 12,
            "splitting.horizon": 6.0,
        }
    )
    small = shrink(config)
    assert (small.model.width, small.model.dtype, small.model.dropout) == (8, "float64", 0.0)
    assert (small.controls.knots, small.splitting.steps, small.splitting.horizon) == (2, 4, 1.0)


def test_a_reference_that_cannot_be_had_resolves_nothing(tiny_config, monkeypatch):
    import ctt.certificates.order as order

    monkeypatch.setattr(order, "solve_unsplit", lambda fields, u0, *args, **options: u0 * jnp.nan)
    check = certify_order(tiny_config({}))
    assert (check.outcome, check.values["steps"]) == ("not resolved", [])
