"""Muon and decay of the rate by layer know that axis 0 of a control is depth."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from optax import contrib

from ctt.config import OptimizerConfig
from ctt.config.name import OPTIMIZERS
from ctt.config.schema import StagesConfig
from ctt.models.build import build_model
from ctt.training.optimizer import Depth, Place, build_optimizer, locate_parameters
from ctt.training.optimizer.depth import _axes, name_parameter

STEPS, DECAY = 4, 0.5
CVT = {
    "model.name": "cvt",
    "model.patch_size": 2,
    "model.width": 64,
    "model.num_heads": 4,
    "model.feedforward_width": 128,
    "model.stages": StagesConfig(
        widths=(4, 6),
        num_heads=(1, 2),
        feedforward_widths=(5, 7),
        steps=(1, 2),
        kernels=(3, 3),
        strides=(2, 1),
        paddings=(1, 1),
        projection_kernels=(3, 3),
        key_value_strides=(1, 1),
        key_value_paddings=(1, 1),
    ),
}


@pytest.fixture(scope="module")
def locate(tiny_config):
    """Return a function from overrides to a model's parameters, drawn, by dotted name, as a tree, and their places."""

    def make(overrides=None):
        model = nnx.eval_shape(lambda: build_model(tiny_config({"splitting.steps": STEPS, **(overrides or {})})))
        generator = np.random.default_rng(0)
        params = jax.tree.map(
            lambda x: jnp.asarray(generator.standard_normal(x.shape), x.dtype), nnx.state(model, nnx.Param)
        )
        return params, locate_parameters(model)

    return make


def by_name(tree):
    return {name_parameter(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def layers(places):
    return {name: np.asarray(place.layers).tolist() for name, place in places.items()}


def ends(places, *parts):
    (place,) = {tuple(np.ravel(places[name].layers)) for name in places if all(part in name for part in parts)}
    return place


def test_the_places_are_those_of_all_parameters(locate):
    params, depth = locate()
    assert set(depth.places) == set(by_name(params))


def test_the_lift_is_layer_0_the_steps_follow_and_the_read_out_is_last(locate):
    _, depth = locate()
    assert depth.last == STEPS + 1
    assert ends(depth.places, "lift.") == (0,)
    assert ends(depth.places, "evolution.") == (1, 2, 3, 4)
    assert ends(depth.places, "read_out.") == (5,)
    assert layers(depth.places)["normalization.scale"] == 5


@pytest.mark.parametrize(("knots", "expected"), [(4, (1, 2, 3, 4)), (2, (1.5, 3.5)), (1, (2.5,))])
def test_a_knot_over_several_steps_has_the_layer_of_its_middle(locate, knots, expected):
    assert ends(locate({"controls.knots": knots})[1].places, "evolution.") == expected


def test_a_node_of_a_staggered_scheme_is_half_a_layer_from_the_steps_beside_it(locate):
    places = locate({"splitting.scheme": "strang_staggered"})[1].places
    assert ends(places, "operators.attention.") == (0.5, 1.5, 2.5, 3.5, 4.5)
    assert ends(places, "operators.feedforward.") == (1, 2, 3, 4)


def test_the_stages_of_a_cvt_are_counted_on(locate):
    _, depth = locate({**CVT, "splitting.steps": 6})
    places = depth.places
    assert depth.last == 7
    assert ends(places, "stages.0.embedding") == (0,)
    assert ends(places, "stages.0.evolution") == (1, 2)
    assert ends(places, "stages.1.embedding") == (2,)
    assert ends(places, "stages.1.evolution") == (3, 4, 5, 6)
    assert ends(places, "read_out") == (7,)


def test_a_set_of_the_first_stage_belongs_to_its_entrance(locate):
    overrides = {**CVT, "splitting.steps": 3, "normalization.placement": "tangent", "normalization.affine": "scalar"}
    assert ends(locate(overrides)[1].places, "stages.0.normalization") == (0,)


def test_matrices_are_the_linear_maps_of_the_controls(locate):
    _, depth = locate({**CVT, "splitting.steps": 3})
    matrices = {name for name, place in depth.places.items() if place.output}
    assert matrices == {
        f"stages.{stage}.evolution.controls.operators.{name}.kernel"
        for stage in (0, 1)
        for name in (
            *(f"attention.operator.{part}.linear" for part in ("query", "key", "value")),
            "attention.operator.output",
            *(f"feedforward.operator.{part}" for part in ("expand", "contract")),
        )
    }
    assert {(depth.places[name].reduction, depth.places[name].output) for name in matrices} == {((1,), (2,))}


@pytest.mark.parametrize(
    ("num_in", "num_out", "axis", "expected"),
    [(6, (2, 3), -1, ((1,), (2, 3))), ((2, 3), 6, (-2, -1), ((1, 2), (3,)))],
)
def test_the_axes_of_heads_belong_to_one_side_of_a_map(num_in, num_out, axis, expected):
    linear = nnx.LinearGeneral(num_in, num_out, axis=axis, rngs=nnx.Rngs(0))
    assert _axes(linear, (4, *linear.kernel.shape)) == expected
    assert _axes(linear, (4, *linear.bias.shape)) == ((), ())


def test_a_convolution_is_no_linear_map():
    convolution = nnx.Conv(3, 4, (2,), rngs=nnx.Rngs(0))
    assert _axes(convolution, (4, *convolution.kernel.shape)) == ((), ())


@pytest.fixture(scope="module")
def muon(locate):
    """Parameters, their gradient and Muon's update, each by name, and the places."""
    params, depth = locate()
    gradient = jax.tree.map(lambda x: jnp.sin(10 * x), params)
    config = OptimizerConfig(name="muon", weight_decay=0.0, clip_norm=None, momentum=0.9)
    optimizer = build_optimizer(config, lambda step: 0.1, depth)
    state = optimizer.init(params)
    updates, _ = jax.jit(optimizer.update)(gradient, state, params)
    return by_name(params), by_name(gradient), by_name(updates), depth


def test_muons_update_of_a_stack_is_that_of_each_matrix(muon):
    _, gradient, updates, depth = muon
    single = contrib.muon(0.1, beta=0.9, consistent_rms=0.2)
    names = [name for name, place in depth.places.items() if place.output]
    assert len(names) == 6
    for name in names:
        assert updates[name].shape[0] == STEPS
        for n in range(STEPS):
            matrix = gradient[name][n]
            expected, _ = single.update(matrix, single.init(matrix), matrix)
            np.testing.assert_allclose(updates[name][n], expected, rtol=1e-3, atol=1e-5)


def test_muon_leaves_all_else_to_adamw(muon):
    params, gradient, updates, depth = muon
    others = [name for name, place in depth.places.items() if not place.output]
    assert {"lift.linear.kernel", "read_out.kernel", "lift.positions"} < set(others)
    adam = optax.nadamw(0.1, weight_decay=0.0)
    for name in others:
        expected, _ = adam.update(gradient[name], adam.init(params[name]), params[name])
        np.testing.assert_allclose(updates[name], expected, rtol=1e-5)


def test_muons_steps_are_of_the_size_of_adamws(muon):
    # The singular values of an orthogonalised matrix are about 1, between 0.7 and 1.2.
    _, _, updates, depth = muon
    for name in (name for name, place in depth.places.items() if place.output):
        rms = float(jnp.sqrt(jnp.mean(jnp.square(updates[name])))) / 0.1
        assert 0.5 * 0.2 < rms < 1.5 * 0.2


def test_a_stack_of_heads_is_one_matrix_a_depth():
    generator = np.random.default_rng(0)
    value = jnp.asarray(generator.standard_normal((3, 4, 2, 5)), jnp.float32)
    depth = Depth(4, {"kernel": Place(np.arange(3.0), (1,), (2, 3))})
    config = OptimizerConfig(name="muon", weight_decay=0.0, clip_norm=None)
    optimizer = build_optimizer(config, lambda step: 0.1, depth)
    (update, _), single = (
        optimizer.update({"kernel": value}, optimizer.init({"kernel": value}), {"kernel": value}),
        (contrib.muon(0.1, beta=0.9, consistent_rms=0.2)),
    )
    for n in range(3):
        matrix = value[n].reshape(4, 10)
        expected, _ = single.update(matrix, single.init(matrix), matrix)
        np.testing.assert_allclose(update["kernel"][n].reshape(4, 10), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_decay_by_layer_scales_the_first_update_of_each_depth(locate, name):
    params, depth = locate()
    gradient = jax.tree.map(lambda x: jnp.sin(10 * x), params)
    received = []
    for decay in (1.0, DECAY):
        config = OptimizerConfig(name=name, schedule="constant", layer_decay=decay, weight_decay=0.3)
        optimizer = build_optimizer(config, lambda step: 0.1, depth)
        updates, _ = jax.jit(optimizer.update)(gradient, optimizer.init(params), params)
        received.append(by_name(updates))
    plain, scaled = received
    for parameter, update in plain.items():
        place = np.asarray(depth.places[parameter].layers)
        factors = DECAY ** (depth.last - place)
        shape = (*place.shape, *[1] * (update.ndim - place.ndim))
        # The difference of two weights, as schedule_free returns it, has the round-off of the weights.
        np.testing.assert_allclose(scaled[parameter], factors.reshape(shape) * update, rtol=1e-4, atol=1e-6)


def test_the_read_out_is_not_scaled_and_the_lift_most(locate):
    _, depth = locate()
    factors = {name: DECAY ** (depth.last - np.asarray(place.layers)) for name, place in depth.places.items()}
    assert factors["read_out.kernel"] == 1
    assert factors["lift.linear.kernel"] == DECAY ** (STEPS + 1) == min(np.min(value) for value in factors.values())
