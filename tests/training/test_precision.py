"""bfloat16 is the type of the state alone: weights, gradients, moments, averages and the loss are float32."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from small_stage import SIZES, STAGES

from ctt.config.name import OPTIMIZERS
from ctt.models.build import build_model
from ctt.training.loss import cross_entropy
from ctt.training.state import Batch
from ctt.training.step import build_update

BATCH = 4
MODELS = {
    "vit pre": {},
    "vit post": {"normalization.placement": "post"},
    "vit tangent": {"normalization.placement": "tangent", "normalization.affine": "scalar"},
    "vit sphere": {"normalization.constraint": "sphere"},
    **{
        f"cvt {name}": {**SIZES, "model.name": "cvt", "model.stages": STAGES, "model.convolution_normalization": name}
        for name in ("layer", "batch")
    },
}


@pytest.fixture(scope="module")
def build(tiny_config):
    """Return a maker of a config in bfloat16 and its abstract model."""

    def make(overrides):
        common = {"model.dtype": "bfloat16", "model.dropout": 0.1, "model.stochastic_depth": 0.1}
        config = tiny_config({**common, "model.activation": "relu", "training.batch_size": BATCH, **overrides})
        return config, nnx.eval_shape(lambda: build_model(config))

    return make


def floating_types(tree):
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)}


def abstract_step(config, model):
    """Return the abstract state before and after an update, and its measures."""
    images, labels = jnp.zeros((BATCH, 4, 6, 1), jnp.uint8), jnp.zeros(BATCH, jnp.int32)
    graphdef, values = nnx.split(model)

    def step(values):
        state, update = build_update(config, nnx.merge(graphdef, values), 10)
        return state, *update(state, Batch(images, labels))

    return jax.eval_shape(step, values)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_that_an_update_keeps_is_float32(build, name):
    average = {} if name == "schedule_free" else {"optimizer.ema_decay": 0.9}
    schedule = "constant" if name == "schedule_free" else "cosine"
    config, model = build({"optimizer.name": name, "optimizer.schedule": schedule, **average})
    before, after, metrics = abstract_step(config, model)
    assert floating_types(before) == floating_types(after) == floating_types(metrics) == {"float32"}
    assert bool(jax.tree.leaves(after.average)) == bool(average)


@pytest.mark.parametrize("parts", [1, 2])
def test_running_averages_and_sums_of_gradients_are_float32(build, parts):
    overrides = MODELS["cvt batch"] if parts == 1 else {"training.micro_batches": parts}
    before, after, _ = abstract_step(*build({**overrides, "optimizer.ema_decay": 0.9}))
    assert floating_types(before) == floating_types(after) == {"float32"}


def walk(jaxpr):
    """Yield all equations of a program, those of its loops and functions too."""
    for equation in jaxpr.eqns:
        yield equation
        inner = jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        )
        for value in inner:
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                yield from walk(getattr(value, "jaxpr", value))


ISLANDS = {"exp", "log", "rsqrt", "sqrt", "reduce_max", "square", "integer_pow"}
"""What softmax, normalisation and loss are made of, and a field of linear maps and relu is not."""


@pytest.mark.parametrize("overrides", MODELS.values(), ids=MODELS)
def test_softmax_normalisation_and_loss_are_float32_islands(build, overrides):
    _, model = build(overrides)
    model.train()
    graphdef, state = nnx.split(model)
    keys = jax.random.split(jax.random.key(0), BATCH)

    def loss(state):
        logits = nnx.merge(graphdef, state, copy=True)(jnp.zeros((BATCH, 4, 6, 1), jnp.uint8), keys=keys)
        assert logits.dtype == jnp.float32
        return jnp.mean(cross_entropy(logits, jnp.zeros(BATCH, jnp.int32), label_smoothing=0.1))

    equations = list(walk(jax.make_jaxpr(loss)(state).jaxpr))
    kinds = {
        (equation.primitive.name, str(variable.aval.dtype))
        for equation in equations
        for variable in equation.invars
        if equation.primitive.name in ISLANDS and jnp.issubdtype(variable.aval.dtype, jnp.floating)
    }
    assert {name for name, _ in kinds} >= {"exp", "log"}
    assert {name for name, _ in kinds} & {"rsqrt", "sqrt"}
    assert {dtype for _, dtype in kinds} == {"float32"}
    products = {str(e.invars[0].aval.dtype) for e in equations if e.primitive.name == "dot_general"}
    assert "bfloat16" in products


def test_the_walk_sees_what_is_inside_of_loops():
    def loop(x):
        return jax.lax.scan(lambda u, _: (jax.checkpoint(jnp.exp)(u), None), x, None, length=3)[0]

    names = [equation.primitive.name for equation in walk(jax.make_jaxpr(loop)(jnp.ones(2)).jaxpr)]
    assert "exp" in names


@pytest.mark.parametrize(("mixed", "smoothing"), list(itertools.product((False, True), (0.0, 0.1))))
def test_the_loss_of_float32_logits_is_float32(mixed, smoothing):
    labels = jnp.full((2, 3), 1 / 3) if mixed else jnp.array([0, 2])
    logits = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3)), jnp.float32)
    assert cross_entropy(logits, labels, label_smoothing=smoothing).dtype == jnp.float32
