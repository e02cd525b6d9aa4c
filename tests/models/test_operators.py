"""From names to operators: those of the package, those of a user's own file, and the names that are neither."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError
from ctt.dynamics import Normalization, PreNormalized
from ctt.models import Evolution, build_model
from ctt.models.operators import OPERATORS, build_normalization, build_operators, operator_label

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 1)).astype(np.uint8)
NAMES = ("attention", "feedforward", "heat", "skew")
TOKENS = {"mean": 6, "cls": 7}

WIND = """
import sys

import jax
import jax.numpy as jnp
from flax import nnx


class Wind(nnx.Module):
    def __init__(self, config, *, rngs):
        self.speed = nnx.Param(jax.random.normal(rngs.params(), (config.model.width,)))

    def vector_field(self, t, u):
        return self.speed[...].astype(u.dtype) * jnp.roll(u, 1, axis=-2)


class Calm:
    def __init__(self, config, *, rngs):
        self.drag = 0.25

    def vector_field(self, t, u):
        return -self.drag * u


class Gust(nnx.Module):
    def __init__(self, config, *, rngs):
        pass


number = 3
"""


@pytest.fixture
def wind(tmp_path):
    """Return the path of a file with operators of a user's own."""
    path = tmp_path / "wind.py"
    path.write_text(WIND)
    return path


@pytest.fixture
def build(tiny_config, draw_weights):
    """Return a maker of small models with random weights, of the given operators."""

    def make(*operators, **overrides):
        fields = {"model.operators": operators} | {key.replace("__", "."): value for key, value in overrides.items()}
        return draw_weights(lambda: build_model(tiny_config(fields)))

    return make


@pytest.fixture
def forward(call_jitted):
    """Return a function from a model to the logits of two images."""
    return lambda model: np.asarray(call_jitted(lambda m, x: m(x), model, IMAGES))


def test_the_operators_are_those_that_the_help_names():
    assert tuple(OPERATORS) == NAMES


@pytest.mark.parametrize("operators", [NAMES, *((name,) for name in NAMES), ("heat", "attention")], ids="-".join)
def test_a_model_of_any_operators_classifies_images(build, forward, operators):
    model = build(*operators)
    assert model.evolution.controls.names == operators
    logits = forward(model)
    assert logits.shape == (2, 3)
    assert np.all(np.isfinite(logits))
    assert np.ptp(logits, axis=0).max() > 0


@pytest.mark.parametrize("pooling", TOKENS)
@pytest.mark.parametrize("substep", ["euler", "exact"])
def test_heat_diffuses_the_patches_and_leaves_a_class_token(build, call_jitted, pooling, substep):
    model = build("heat", model__pooling=pooling, splitting__substep=substep)
    states = np.asarray(call_jitted(lambda m, x: m.trajectory(x), model, IMAGES))
    first, last = states[0], states[-1]
    mesh = slice(TOKENS[pooling] - 6, None)
    if pooling == "cls":
        np.testing.assert_allclose(last[:, 0], first[:, 0], rtol=1e-6)
    if substep == "exact":
        # The own flow, which no normalisation in the field spoils: the mean over the mesh stays, differences shrink.
        np.testing.assert_allclose(last[:, mesh].mean(1), first[:, mesh].mean(1), rtol=1e-4, atol=1e-5)
        assert np.all(last[:, mesh].std(1) < first[:, mesh].std(1))


def test_rotation_by_its_own_flow_keeps_the_norm_of_every_token(build, call_jitted):
    model = build("skew", splitting__substep="exact")
    states = np.asarray(call_jitted(lambda m, x: m.trajectory(x), model, IMAGES))
    np.testing.assert_allclose(np.linalg.norm(states[-1], axis=-1), np.linalg.norm(states[0], axis=-1), rtol=1e-4)
    assert np.abs(states[-1] - states[0]).max() > 0.1


def test_options_of_the_operators_come_from_the_config(tiny_config):
    fields = {
        "model.operators": NAMES,
        "model.causal": True,
        "model.skew_flow": "cayley",
        "model.heat_diffusivity": 0.5,
    }
    operators = build_operators(tiny_config(fields))(nnx.Rngs(0))
    assert operators["attention"].operator.is_causal
    assert operators["skew"].method == "cayley"
    np.testing.assert_allclose(jnp.exp(operators["heat"].log_diffusivity[...]), 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("placement", "shared"), [("pre", True), ("pre", False), ("post", True), ("post", False), ("tangent", True)]
)
def test_operators_share_a_normalisation_where_the_config_says_so(tiny_config, placement, shared):
    fields = {"placement": placement, "affine": "scalar", "shared": shared}
    config = tiny_config({f"normalization.{field}": value for field, value in fields.items()})
    first, second = build_operators(config)(nnx.Rngs(0)).values()
    assert (first.normalization is second.normalization) is shared


def test_a_normalisation_has_the_constraint_of_the_config(tiny_config):
    config = tiny_config({"normalization.constraint": "sphere", "normalization.eps": 0.25})
    norm = build_normalization(config, nnx.Rngs(0))
    assert isinstance(norm, Normalization)
    assert (norm.constraint, norm.eps, norm.bias) == ("sphere", 0.25, None)


@pytest.mark.parametrize(("name", "label"), [("heat", "heat"), ("a/wind.py:Wind", "Wind"), ("pkg.wind:Wind", "Wind")])
def test_an_operator_is_called_by_its_name_or_its_class(name, label):
    assert operator_label(name) == label


@pytest.mark.parametrize("class_name", ["Wind", "Calm"])
def test_an_operator_from_a_file_is_one_of_the_summands(build, forward, wind, class_name):
    model = build("attention", f"{wind}:{class_name}")
    assert model.evolution.controls.names == ("attention", class_name)
    with_it, without = forward(model), forward(build("attention"))
    assert np.all(np.isfinite(with_it))
    assert np.abs(with_it - without).max() > 1e-3


def test_an_operator_from_a_module_is_found_in_the_present_folder(tiny_config, wind, monkeypatch):
    monkeypatch.chdir(wind.parent)
    monkeypatch.delitem(sys.modules, "wind", raising=False)
    operators = build_operators(tiny_config({"model.operators": ("wind:Wind", "wind.py:Calm")}))(nnx.Rngs(0))
    assert [type(placed.operator).__name__ for placed in operators.values()] == ["Wind", "Calm"]
    assert all(isinstance(placed, PreNormalized) for placed in operators.values())
    sys.modules.pop("wind")


def test_the_weights_of_a_users_operator_are_controls_and_learn(build, fast_compilation, wind):
    model = build("attention", f"{wind}:Wind")
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params):
        return -jnp.sum(jax.nn.log_softmax(nnx.merge(graphdef, params, rest)(IMAGES))[:, 0])

    descend = jax.jit(jax.value_and_grad(loss), compiler_options=fast_compilation)
    before, gradient = descend(params)
    speed = gradient["evolution"]["controls"]["operators"]["Wind"]["operator"]["speed"][...]
    assert speed.shape == (2, 8)
    assert bool(jnp.all(jnp.abs(speed).max(1) > 1e-6))
    after, _ = descend(jax.tree.map(lambda x, dx: x - 1e-2 * dx, params, gradient))
    assert after < before


def test_a_users_operator_is_a_letter_of_a_users_word(build, call_jitted, wind, relative_difference):
    word = {"splitting__scheme": "word", "splitting__word": "Wind/2 feedforward Wind/2"}
    by_word, by_name = (
        call_jitted(lambda m, x: m.trajectory(x), build(f"{wind}:Wind", "feedforward", **fields), IMAGES)
        for fields in (word, {"splitting__scheme": "strang"})
    )
    assert relative_difference(by_word, by_name) < 1e-6


def test_a_word_names_a_users_operator_by_its_class(tiny_config, wind):
    word = {"splitting.scheme": "word", "splitting.word": "Wnid feedforward"}
    config = tiny_config({"model.operators": (f"{wind}:Wind", "feedforward"), **word})
    with pytest.raises(InputError, match=r"the operator `Wnid`: did you mean `Wind`\? Known: Wind, feedforward"):
        nnx.eval_shape(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))


BROKEN = {
    "an unknown name": (
        "atention",
        "must hold known names, .*got 'atention': did you mean `attention`. Known: attention",
    ),
    "a file without a class": ("wind.py", r"must hold known names, or package\.module:Class, got 'wind\.py'"),
    "an empty class": ("wind.py:", r"must hold known names, or package\.module:Class, got 'wind\.py:'"),
    "no class name": ("wind.py:Wind Class", r"must hold known names, .*got 'wind\.py:Wind Class'"),
    "a missing file": ("storm.py:Wind", r"names 'storm\.py:Wind', but the file `storm\.py` does not exist\. Check"),
    "a missing class": ("wind.py:Storm", r"names 'wind\.py:Storm', but `wind\.py` has no class Storm\. Check the name"),
    "something that cannot be called": ("wind.py:number", r"but `wind\.py` has no class number\. Check the name"),
    "no vector field": ("wind.py:Gust", r"`Gust` must have a method `vector_field\(t, u\)`, got Gust\. Add one"),
    "a file that raises": ("broken.py:Wind", r"whose file raised ZeroDivisionError: division by zero\. Mend the file"),
    "a module that raises": ("broken:Wind", r"cannot be imported \(ZeroDivisionError: division by zero\)\. Install it"),
    "a missing module": (
        "no_such_storm:Wind",
        r"cannot be imported \(ModuleNotFoundError: No module named 'no_such_sto",
    ),
    "a missing package": ("no.storm:Wind", r"cannot be imported \(ModuleNotFoundError: No module named 'no'"),
    "a missing class of a module": ("json:Wind", "but `json` has no class Wind. Check the name"),
}


@pytest.mark.parametrize(("name", "message"), BROKEN.values(), ids=BROKEN)
def test_a_wrong_name_is_refused_with_one_sentence(tiny_config, wind, monkeypatch, name, message):
    (wind.parent / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(wind.parent)
    config = tiny_config({"model.operators": ("attention", name)})
    with pytest.raises(InputError, match=message) as caught:
        build_operators(config)(nnx.Rngs(0))
    assert "\n" not in str(caught.value)


def test_a_search_for_a_module_leaves_the_path_as_it_was(tiny_config):
    path = sys.path
    before = list(path)
    with pytest.raises(InputError, match="cannot be imported"):
        build_operators(tiny_config({"model.operators": ("no_such_storm:Wind",)}))
    assert path == before


def test_two_classes_of_one_name_are_refused(tiny_config, wind):
    other = wind.with_name("other.py")
    other.write_text(WIND)
    config = tiny_config({"model.operators": (f"{wind}:Wind", f"{other}:Wind")})
    with pytest.raises(InputError, match=r"`model\.operators` must have different names, got .*Rename a class\."):
        build_operators(config)


@pytest.mark.parametrize("operators", [(), ("attention", "attention")])
def test_operators_are_at_least_one_and_each_once(tiny_config, operators):
    with pytest.raises(InputError, match=r"`model\.operators` must name .*pass --model\.operators"):
        tiny_config({"model.operators": operators})


@pytest.mark.parametrize("operators", [("attention", "heat"), ("heat", "feedforward", "skew")])
def test_diffusion_is_refused_where_a_scheme_flows_backwards(tiny_config, operators):
    config = tiny_config({"model.operators": operators, "splitting.scheme": "yoshida4"})
    with pytest.raises(
        InputError, match=r"`yoshida4` flows backwards .*which heat cannot: .*ill posed.*such as strang"
    ):
        nnx.eval_shape(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))


@pytest.mark.parametrize("placement", ["pre", "tangent"])
def test_an_exact_substep_is_refused_without_a_flow(tiny_config, placement):
    fields = {"normalization.placement": placement, "normalization.affine": "none", "splitting.substep": "exact"}
    config = tiny_config({"model.operators": ("skew", "attention"), **fields})
    first = "attention" if placement == "pre" else "skew"
    with pytest.raises(InputError, match=rf"`exact` needs an operator with a flow of its own, {first} has none"):
        nnx.eval_shape(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))


FAULTY = """
import jax.numpy as jnp


class NoArguments:
    def vector_field(self, t, u):
        return u


class Raising:
    def __init__(self, config, *, rngs):
        raise RuntimeError("no wind today")

    def vector_field(self, t, u):
        return u


class PlainArray:
    def __init__(self, config, *, rngs):
        self.speed = jnp.ones(3)

    def vector_field(self, t, u):
        return u


class WrongShape:
    def __init__(self, config, *, rngs):
        pass

    def vector_field(self, t, u):
        return u[..., :1]
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoArguments", r"`NoArguments` cannot be made \(TypeError.*called as NoArguments\(config, rngs=rngs\)"),
        ("Raising", r"`Raising` cannot be made \(RuntimeError: no wind today\)"),
        ("PlainArray", r"`PlainArray` must be an nnx\.Module to hold arrays, got speed"),
        ("WrongShape", r"A field must have the shape of the state, .*, got .*Correct"),
    ],
)
def test_a_faulty_class_is_refused_in_one_sentence(tiny_config, tmp_path, name, message):
    (tmp_path / "faulty.py").write_text(FAULTY)
    config = tiny_config({"model.operators": ("attention", f"{tmp_path}/faulty.py:{name}")})
    with pytest.raises(InputError, match=message):
        build_model(config)(np.zeros((1, 4, 6, 1), np.uint8))


def test_a_file_may_hold_a_dataclass_and_import_its_neighbour(tiny_config, tmp_path):
    (tmp_path / "neighbour_of_wind.py").write_text("SPEED = 0.5\n")
    (tmp_path / "calm.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from neighbour_of_wind import SPEED\n\n\n"
        "@dataclass(frozen=True)\nclass Settings:\n    speed: float = SPEED\n\n\n"
        "class Calm:\n    def __init__(self, config, *, rngs):\n        self.settings = Settings()\n\n"
        "    def vector_field(self, t, u):\n        return self.settings.speed * u\n"
    )
    model = build_model(tiny_config({"model.operators": ("attention", f"{tmp_path}/calm.py:Calm")}))
    assert model.evolution.controls.operators["Calm"].operator.settings.speed == 0.5
