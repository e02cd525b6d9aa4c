import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError, StagesConfig
from ctt.models import CvT, build_model, count_parameters

SHAPE = (8, 12, 3)
STAGES = StagesConfig(
    widths=(4, 8),
    num_heads=(1, 2),
    feedforward_widths=(6, 10),
    steps=(1, 2),
    kernels=(3, 3),
    strides=(2, 2),
    paddings=(1, 1),
    projection_kernels=(3, 3),
    key_value_strides=(2, 1),
    key_value_paddings=(1, 1),
)


@pytest.fixture
def cvt_config(tiny_config):
    def make(overrides=None):
        stages = {"data.image_shape": SHAPE, "data.mean": (0.3, 0.4, 0.5), "data.std": (0.2, 0.3, 0.4)}
        cleared = {
            "model.patch_size": 2,
            "model.width": 64,
            "model.num_heads": 4,
            "model.feedforward_width": 128,
            "splitting.steps": 3,
        }
        return tiny_config({**stages, **cleared, "model.name": "cvt", "model.stages": STAGES, **(overrides or {})})

    return make


def images(batch=2, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (batch, *SHAPE)).astype(np.uint8)


def test_states_have_the_shapes_of_their_stages(cvt_config, draw_weights, call_jitted):
    model = draw_weights(lambda: build_model(cvt_config({"model.pooling": "cls"})))
    assert isinstance(model, CvT)
    first, second = call_jitted(lambda m, x: m.trajectory(x), model, images())
    assert (first.shape, second.shape) == ((2, 2, 24, 4), (3, 2, 7, 8))
    logits = call_jitted(lambda m, x: (m(x), m.classify(m.trajectory(x)[-1][-1])), model, images())
    np.testing.assert_allclose(*logits, rtol=0, atol=1e-6)
    assert logits[0].shape == (2, 3)


@pytest.mark.parametrize("name", ["pre", "post", "tangent"])
@pytest.mark.parametrize("scheme", ["lie", "strang", "strang_staggered", "parallel", "swss"])
def test_every_scheme_and_placement_runs_and_is_differentiable(cvt_config, draw_weights, call_jitted, scheme, name):
    config = cvt_config(
        {
            "splitting.scheme": scheme,
            "splitting.substep": "midpoint",
            "normalization.placement": name,
            "normalization.affine": "none",
        }
    )
    model = draw_weights(lambda: build_model(config))

    def loss(model, x):
        graphdef, params = nnx.split(model, nnx.Param)
        return jax.grad(lambda p: jnp.sum(jnp.square(nnx.merge(graphdef, p)(x))))(params)

    gradient = call_jitted(loss, model, images())
    norms = [float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(gradient)]
    assert np.all(np.isfinite(norms))
    assert np.mean(np.asarray(norms) > 0) > 0.9


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("normalization", ["layer", "batch"])
def test_gradient_methods_agree(cvt_config, draw_weights, call_jitted, relative_difference, normalization):
    def gradient(method):
        config = cvt_config(
            {
                "gradient.method": method,
                "model.dtype": "float64",
                "model.convolution_normalization": normalization,
                "model.dropout": 0.3,
            }
        )
        model = draw_weights(lambda: build_model(config))

        def loss(model, x):
            keys = jax.random.split(jax.random.key(0), len(x))
            model.train()
            graphdef, params, rest = nnx.split(model, nnx.Param, ...)
            function = lambda p: jnp.sum(jnp.square(nnx.merge(graphdef, p, rest, copy=True)(x, keys=keys)))  # noqa: E731
            return jax.grad(function)(params)

        return call_jitted(loss, model, images())

    assert relative_difference(gradient("remat"), gradient("store")) < 1e-12


@pytest.mark.usefixtures("float64")
def test_on_the_sphere_of_tangent_every_state_stays(cvt_config, draw_weights, call_jitted):
    config = cvt_config(
        {
            "normalization.placement": "tangent",
            "normalization.affine": "scalar",
            "normalization.eps": 0.0,
            "model.dtype": "float64",
        }
    )
    model = draw_weights(lambda: build_model(config))
    for states in call_jitted(lambda m, x: m.trajectory(x), model, images()):
        np.testing.assert_allclose(states.mean(-1), 0, atol=1e-12)
        np.testing.assert_allclose(states.var(-1), 1, atol=1e-12)


def test_one_knot_a_stage_ties_its_steps(cvt_config):
    shapes = [
        jax.tree.leaves(nnx.state(e.controls.operators, nnx.Param))[0].shape[0]
        for e in nnx.eval_shape(lambda: build_model(cvt_config({"controls.knots": 1}))).evolutions
    ]
    assert shapes == [1, 1]


def test_more_steps_share_the_controls(cvt_config):
    models = [
        nnx.eval_shape(lambda n=n: build_model(cvt_config({"splitting.steps": n, "controls.knots": 3}))) for n in (3, 6)
    ]
    assert [[e.steps for e in model.evolutions] for model in models] == [[1, 2], [2, 4]]
    assert count_parameters(models[0]) == count_parameters(models[1])


def test_dropout_differs_between_stages_and_images(cvt_config, draw_weights, call_jitted):
    model = draw_weights(lambda: build_model(cvt_config({"model.dropout": 0.5})))
    twice = np.concatenate([images(1), images(1)])
    keys = jax.random.split(jax.random.key(1), 2)
    one, other = call_jitted(lambda m, x, k: m(x, keys=k), model, twice, keys)
    assert np.abs(one - other).max() > 1e-3
    same = call_jitted(lambda m, x, k: m(x, keys=k), model, twice, keys[jnp.array([0, 0])])
    np.testing.assert_allclose(same[0], one, rtol=0, atol=1e-6)
    np.testing.assert_allclose(same[0], same[1], rtol=0, atol=1e-6)


def test_running_costs_add_up_over_the_stages(cvt_config, draw_weights, call_jitted):
    model = draw_weights(lambda: build_model(cvt_config()))
    count = call_jitted(
        lambda m, x: m.forward(x, running_cost=lambda n, u, v, theta: jnp.float32(1))[1], model, images()
    )
    assert count == 3


def test_the_splitting_error_has_a_value_a_step(cvt_config, draw_weights, call_jitted):
    model = draw_weights(lambda: build_model(cvt_config()))
    for values in call_jitted(lambda m, x: m.measure_splitting(x), model, images()).values():
        assert values.shape[0] == 3


@pytest.mark.usefixtures("float64")
def test_adaptive_steps_tend_to_the_fine_grid(cvt_config, draw_weights, call_jitted):
    fields = {
        "model.dtype": "float64",
        "splitting.scheme": "strang",
        "splitting.substep": "midpoint",
        "splitting.steps": 96,
        "splitting.horizon": 3.0,
        "controls.knots": 3,
    }
    model = draw_weights(lambda: build_model(cvt_config(fields)))
    fine = call_jitted(lambda m, x: m(x), model, images())
    adaptive = call_jitted(
        lambda m, x: m.classify_adaptively(x, rtol=1e-4, atol=1e-7, max_steps=4096).logits, model, images()
    )
    np.testing.assert_allclose(adaptive, fine, rtol=0, atol=2e-3)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("normalization", ["layer", "none", "batch"])
def test_in_evaluation_an_image_does_not_see_its_batch(cvt_config, draw_weights, call_jitted, normalization, pooling):
    config = cvt_config({"model.convolution_normalization": normalization, "model.pooling": pooling})
    model = draw_weights(lambda: build_model(config), size=0.2)
    for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.BatchStat)):
        if path[-1] == "var":
            leaf[...] = jnp.abs(leaf[...]) + 0.5
    together = call_jitted(lambda m, x: m(x), model, images(3))
    alone = call_jitted(lambda m, x: m(x), model, images(3)[1:2])
    np.testing.assert_allclose(together[1], alone[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("normalization", ["layer", "none"])
def test_in_training_too_without_batch_normalisation(cvt_config, draw_weights, call_jitted, normalization):
    model = draw_weights(lambda: build_model(cvt_config({"model.convolution_normalization": normalization})))
    model.train()
    together, alone = (call_jitted(lambda m, x: m(x), model, x) for x in (images(3), images(3)[1:2]))
    np.testing.assert_allclose(together[1], alone[0], rtol=0, atol=1e-5)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("scheme", ["lie", "strang", "parallel"])
def test_training_updates_the_averages_of_every_step_by_its_own_batch(
    cvt_config, draw_weights, call_jitted, relative_difference, scheme
):
    config = cvt_config(
        {"model.convolution_normalization": "batch", "model.dtype": "float64", "splitting.scheme": scheme}
    )
    model = draw_weights(lambda: build_model(config))

    def by_the_loop(model, x):
        model.train()
        logits = model(x)
        return logits, nnx.state(model, nnx.BatchStat)

    def by_hand(model, x):
        """The steps one by one, without a loop."""
        model.train()
        u, collected = model.check_images(x), []
        for stage, evolution in enumerate(model.evolutions):
            u = model.enter(stage, u)
            for n in range(evolution.steps):
                theta = jax.tree.map(lambda leaf, n=n: leaf[n], evolution.controls.coefficients)
                instant = evolution.controls.instant(theta)
                marcher = evolution._march([instant[name] for name in evolution.controls.names])
                u = marcher.step(u, n * evolution.dt, evolution.dt, is_last=False)
                collected.append(nnx.state(instant, nnx.BatchStat))
        return model.classify(u), collected

    logits, statistics = call_jitted(by_the_loop, model, images(3))
    expected_logits, (first, *second) = call_jitted(by_hand, model, images(3))
    assert relative_difference(logits, expected_logits) < 1e-12
    stacked = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps) for steps in ([first], second)]
    received = [jax.tree.leaves(statistics["stages"][s]) for s in (0, 1)]
    assert relative_difference(received, [jax.tree.leaves(tree) for tree in stacked]) < 1e-12
    assert relative_difference(received[0], jax.tree.leaves(nnx.state(model.stages[0], nnx.BatchStat))) > 0.01


def test_evaluation_leaves_the_averages_alone(cvt_config, draw_weights):
    model = draw_weights(lambda: build_model(cvt_config({"model.convolution_normalization": "batch"})))
    before = jax.tree.leaves(nnx.state(model, nnx.BatchStat))
    model(images())
    for a, b in zip(jax.tree.leaves(nnx.state(model, nnx.BatchStat)), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bfloat16_keeps_its_weights_and_logits_in_float32(cvt_config, call_jitted):
    model = build_model(cvt_config({"model.dtype": "bfloat16", "model.convolution_normalization": "batch"}))
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model))} == {jnp.dtype("float32")}
    assert call_jitted(lambda m, x: m(x), model, images()).dtype == jnp.float32


def test_other_operators_join_in(cvt_config, draw_weights, call_jitted):
    config = cvt_config({"model.operators": ("attention", "heat", "feedforward"), "model.pooling": "cls"})
    model = draw_weights(lambda: build_model(config), size=0.1)
    assert np.all(np.isfinite(call_jitted(lambda m, x: m(x), model, images())))


@pytest.mark.parametrize("shape", [(12, 8, 3), (8, 12, 1), (16, 16, 3)])
def test_images_of_another_shape_are_refused(cvt_config, draw_weights, shape):
    model = draw_weights(lambda: build_model(cvt_config()))
    with pytest.raises(InputError, match=r"must have the shape \[batch, 8, 12, 3\]"):
        model(np.zeros((2, *shape), np.uint8))
