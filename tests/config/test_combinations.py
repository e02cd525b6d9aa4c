"""Combinations of fields: what is refused and why, that the remedy helps, and that the neighbours pass."""

import dataclasses
import json
import re

import pytest

from ctt.config import Config, InputError, config_from_dict, config_to_dict, resolve_config
from ctt.config.compatibility import check_refinable, has_one_set, limit_problem


def make(fields=None):
    """Return a config that is not resolved, with fields given by dotted path."""
    config = Config()
    for path, value in (fields or {}).items():
        head, leaf = path.split(".")
        config = dataclasses.replace(config, **{head: dataclasses.replace(getattr(config, head), **{leaf: value})})
    return config


def resolve(fields=None):
    return resolve_config(make(fields))


TANGENT = {"normalization.placement": "tangent", "normalization.affine": "none"}
POST = {"normalization.placement": "post"}
SHARED_SCALAR = {"normalization.affine": "scalar", "normalization.shared": True}
OWN_SCALAR = {"normalization.affine": "scalar", "normalization.shared": False}
ELEMENTWISE = {"normalization.affine": "elementwise"}
PLAIN = {"normalization.affine": "none"}
STAGGERED = {"splitting.scheme": "strang_staggered"}
SWSS = {"splitting.scheme": "swss"}
ALONE = {"model.operators": ("feedforward",)}
LITERAL = {
    "splitting.scheme": "literal",
    "normalization.placement": "post",
    "model.activation": "relu",
    "model.feedforward_width": 64,
}
SHORT = {"splitting.horizon": 1.0}

# Fields, a part of the message, and the fields that the message says would help.
REFUSED = {
    "an elementwise map on a set with a tangent": (
        TANGENT | ELEMENTWISE,
        r"`normalization\.affine` must be none or scalar with the placement tangent, got 'elementwise': a scale a "
        r"feature maps the state off the set .*Pass --normalization\.affine scalar\.",
        {"normalization.affine": "scalar"},
    ),
    "a moving frame an operator": (
        TANGENT | {"normalization.shared": False},
        r"`normalization\.shared` must be True with the placement tangent, got False: the state has one moving frame\. "
        "Leave it out",
        {"normalization.shared": None},
    ),
    "the mean of two words without one set (elementwise)": (
        POST | SWSS | ELEMENTWISE,
        r"swss with the placement post needs one constraint set, to which the mean of its two words is brought back, "
        r"got affine 'elementwise'\. Pass --normalization\.affine none",
        PLAIN,
    ),
    "the mean of two words without one set (scalar)": (
        POST | SWSS | OWN_SCALAR,
        r"swss with the placement post needs one constraint set, .*got affine 'scalar'\. Pass .*scalar with "
        r"--normalization\.shared True\.",
        SHARED_SCALAR,
    ),
    "a word without its scheme": (
        {"splitting.word": "attention feedforward"},
        r"`splitting\.word` must be given with `splitting\.scheme` word and with no other, got 'attention feedforward' "
        r"with 'lie'\. Pass both",
        {"splitting.scheme": "word"},
    ),
    "the scheme word without a word": (
        {"splitting.scheme": "word"},
        r"`splitting\.word` must be given .*got None with 'word'\. Pass both",
        {"splitting.word": "attention/2 feedforward attention/2"},
    ),
    "fewer substeps than operators": (
        {"splitting.operator_substeps": ("euler",)},
        r"`splitting\.operator_substeps` must be empty or name one substep for each of the 2 operators, got 1\. Set it",
        {"splitting.operator_substeps": ("euler", "midpoint")},
    ),
    "fewer knots than steps on a staggered grid": (
        STAGGERED | {"controls.knots": 2},
        r"`controls\.knots` must be `splitting\.steps` = 4 with the scheme strang_staggered, got 2: its outer operator "
        r"has a control a node .*Leave the knots out, or choose --splitting\.scheme strang\.",
        {"splitting.scheme": "strang"},
    ),
    "a shared moving set on a staggered grid": (
        STAGGERED | SHARED_SCALAR | {"normalization.placement": "tangent"},
        r"`normalization\.affine` scalar cannot be shared with the scheme strang_staggered, whose operators have "
        r"controls at different times\. Pass --normalization\.affine none",
        PLAIN,
    ),
    "more than two linear maps in the residual form": (
        {"model.feedforward_layers": 3},
        r"`model\.feedforward_layers` must be 2 in the residual form, got 3\. Set it to 2, or choose .*scheme literal",
        {"model.feedforward_layers": 2},
    ),
    "short steps without a limit": (
        POST | SHORT,
        r"A step shorter than 1 \(`splitting\.horizon` < `.*steps`\) is not to be had: the placement post with "
        r"an elementwise affine map has no limit .*Choose --normalization\.placement pre or tangent",
        {"normalization.placement": "pre"},
    ),
    "short steps with a limit of each scheme's own": (
        POST | OWN_SCALAR | SHORT,
        r"is not to be had: .* a limit that depends on the scheme: the state jumps between the sets\. Choose",
        {"normalization.shared": True},
    ),
    "a splitting error of the literal scheme": (
        LITERAL | {"training.log_splitting_error": True},
        r"`training\.log_splitting_error` must be False with the scheme literal, which splits nothing\. Leave it out",
        {"training.log_splitting_error": False},
    ),
}


@pytest.mark.parametrize(("fields", "message", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_combination_without_meaning_is_refused_with_the_reason_and_the_way_out(fields, message, remedy):
    with pytest.raises(InputError, match=message):
        resolve(fields)


@pytest.mark.parametrize(("fields", "message", "remedy"), REFUSED.values(), ids=REFUSED)
def test_the_way_out_of_a_refusal_is_one(fields, message, remedy):
    assert resolve(fields | remedy)


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("model.operators", ("feedforward", "attention"), "('attention', 'feedforward')"),
        ("model.activation", "gelu", "'relu'"),
        ("model.feedforward_width", 128, "64"),
        ("model.dropout", 0.1, "0.0"),
        ("normalization.placement", "pre", "'post'"),
        ("normalization.constraint", "sphere", "'s1'"),
        ("normalization.shared", True, "False"),
        ("splitting.substep", "midpoint", "'euler'"),
        ("splitting.operator_substeps", ("euler", "euler"), "()"),
        ("splitting.horizon", 2.0, "4.0"),
        ("splitting.horizon", 8.0, "4.0"),
    ],
)
def test_the_literal_scheme_refuses_what_its_layer_has_not(field, value, wanted):
    message = rf"`{field}` must be {re.escape(wanted)} with the scheme literal, got {re.escape(repr(value))}"
    with pytest.raises(InputError, match=rf"{message}.*pass --{field}, or choose --splitting\.scheme lie\."):
        resolve(LITERAL | {field: value})


ALLOWED = {
    "tangent with a scalar map": TANGENT | SHARED_SCALAR,
    "tangent on the sphere": TANGENT | {"normalization.constraint": "sphere"},
    "swss in pre with elementwise maps": SWSS | ELEMENTWISE,
    "swss in post on one set": POST | SWSS | SHARED_SCALAR,
    "swss in tangent": TANGENT | SWSS,
    "swss in post with one operator": POST | SWSS | OWN_SCALAR | ALONE,
    "post with elementwise maps at step 1": POST,
    "post with elementwise maps at a longer step": POST | {"splitting.horizon": 8.0},
    "post with short steps on one plain set": POST | PLAIN | SHORT,
    "post with short steps on one moving set": POST | SHARED_SCALAR | SHORT,
    "post with short steps and one operator": POST | OWN_SCALAR | ALONE | SHORT,
    "post with short steps where a reduced order is allowed": POST | SHORT | {"splitting.allow_reduced_order": True},
    "staggered with a set an operator": STAGGERED | POST | OWN_SCALAR,
    "staggered in tangent": STAGGERED | TANGENT,
    "staggered with one operator and fewer knots": STAGGERED | ALONE | {"controls.knots": 2},
    "strang with fewer knots": {"splitting.scheme": "strang", "controls.knots": 2},
    "a substep for each of three operators": {
        "model.operators": ("attention", "feedforward", "skew"),
        "splitting.operator_substeps": ("euler", "midpoint", "exact"),
    },
    "the literal scheme": LITERAL,
    "the literal scheme with more linear layers": LITERAL | {"model.feedforward_layers": 4},
    "the literal scheme with a knot for two steps": LITERAL | {"controls.knots": 2},
    "the literal scheme with any affine map": LITERAL | PLAIN,
}


@pytest.mark.parametrize("fields", ALLOWED.values(), ids=ALLOWED)
def test_a_neighbour_of_a_refused_combination_passes(fields):
    assert resolve(fields)


@pytest.mark.parametrize("fields", ALLOWED.values(), ids=ALLOWED)
def test_resolving_a_combination_twice_changes_nothing(fields):
    once = resolve(fields)
    assert resolve_config(once) == once


@pytest.mark.parametrize("fields", ALLOWED.values(), ids=ALLOWED)
def test_a_combination_survives_json(fields):
    for config in (make(fields), resolve(fields)):
        assert config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config


@pytest.mark.parametrize(("placement", "shared"), [("pre", False), ("post", False), ("tangent", True)])
def test_the_set_is_shared_where_the_placement_needs_it_unless_given(placement, shared):
    fields = {"normalization.placement": placement, "normalization.affine": "none"}
    assert resolve(fields).normalization.shared is shared
    given = resolve(fields | {"normalization.shared": True})
    assert given.normalization.shared is True
    assert resolve_config(given) == given


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (PLAIN, True),
        (SHARED_SCALAR, True),
        (OWN_SCALAR, False),
        (ELEMENTWISE, False),
        (ELEMENTWISE | {"normalization.shared": True}, False),
        (OWN_SCALAR | ALONE, True),
        (ELEMENTWISE | ALONE, False),
    ],
)
def test_one_set_needs_one_projection(fields, expected):
    assert has_one_set(resolve(POST | fields)) is expected


LIMITS = {
    "pre": ({}, None),
    "tangent": (TANGENT, None),
    "post on one set": (POST | PLAIN, None),
    "post on one moving set": (POST | SHARED_SCALAR, None),
    "post with elementwise maps": (POST, "the map is applied once a substep, however short"),
    "post with one elementwise map": (POST | {"normalization.shared": True}, "the map is applied once a substep"),
    "post on a set an operator": (POST | OWN_SCALAR, "depends on the scheme"),
    "literal": (LITERAL, "recovery at step 1 only"),
    "literal on one set": (LITERAL | PLAIN, "recovery at step 1 only"),
}


@pytest.mark.parametrize(("fields", "problem"), LIMITS.values(), ids=LIMITS)
def test_a_config_knows_whether_it_has_a_limit(fields, problem):
    received = limit_problem(resolve(fields))
    assert received is None if problem is None else problem in received


@pytest.mark.parametrize(("fields", "problem"), LIMITS.values(), ids=LIMITS)
def test_refinement_is_refused_where_there_is_no_limit(fields, problem):
    config = resolve(fields)
    if problem is None:
        check_refinable(config, "An order certificate")
    else:
        way_out = "--splitting.scheme lie" if "splitting.scheme" in fields else "--splitting.allow-reduced-order"
        with pytest.raises(InputError, match=rf"^An order certificate is not to be had: .*{problem}.*{way_out}"):
            check_refinable(config, "An order certificate")


@pytest.mark.parametrize(("fields", "problem"), LIMITS.values(), ids=LIMITS)
def test_a_reduced_order_may_be_allowed_but_for_the_literal_scheme(fields, problem):
    config = resolve(fields | {"splitting.allow_reduced_order": True})
    if "splitting.scheme" in fields:
        with pytest.raises(InputError, match="not to be had"):
            check_refinable(config, "An order certificate")
    else:
        check_refinable(config, "An order certificate")


NEW_FIELDS = {
    "model": ["operators", "causal", "feedforward_layers", "heat_diffusivity", "skew_flow"],
    "normalization": ["constraint", "shared"],
    "splitting": ["word", "operator_substeps", "allow_reduced_order"],
    "training": ["certify", "log_splitting_error"],
}


def test_a_config_file_from_before_these_fields_still_loads():
    config = resolve()
    values = config_to_dict(config)
    for head, leaves in NEW_FIELDS.items():
        for leaf in leaves:
            del values[head][leaf]
    restored = config_from_dict(json.loads(json.dumps(values)))
    assert resolve_config(restored) == config


def test_the_new_fields_survive_json():
    fields = {
        "model.operators": ("attention", "folder/wind.py:Wind", "heat"),
        "model.causal": True,
        "model.skew_flow": "cayley",
        "normalization.constraint": "sphere",
        "normalization.shared": True,
        "splitting.scheme": "word",
        "splitting.word": "{attention+Wind} heat",
        "splitting.operator_substeps": ("midpoint", "midpoint", "exact"),
        "splitting.allow_reduced_order": True,
        "training.certify": False,
    }
    config = make(fields)
    assert config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config
    assert resolve_config(config).model.operators == fields["model.operators"]
