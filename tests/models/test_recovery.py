"""With Lie, Euler and step 1 a model is the ordinary Transformer, to round-off."""

import jax
import numpy as np
import pytest
from plain_transformer import (
    attention,
    cut_patches,
    feedforward,
    layer_norm,
    linear,
    read_layers,
    read_linear,
    read_norm,
    run_stack,
    sincos_positions,
)

from ctt.models import Evolution, build_model
from ctt.models.operators import build_operators

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def compare_with_plain_stack(tiny_config, draw_weights, call_jitted, relative_difference):
    """Return the relative difference between an `Evolution` and the plain stack with the same weights."""

    def compare(overrides):
        config = tiny_config({"model.dtype": "float64", **overrides})
        evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
        u0 = np.random.default_rng(1).standard_normal((3, 5, config.model.width))
        received = call_jitted(lambda e, u: e(u)[0], evolution, u0)
        expected = run_stack(
            u0,
            read_layers(evolution),
            placement=config.normalization.placement,
            num_heads=config.model.num_heads,
            activation=config.model.activation,
            eps=config.normalization.eps,
        )
        return relative_difference(received, expected)

    return compare


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_lie_with_euler_and_step_one_is_the_plain_stack(compare_with_plain_stack, tolerances, placement, activation):
    overrides = {"normalization.placement": placement, "model.activation": activation}
    assert compare_with_plain_stack(overrides) < tolerances["float64"]


@pytest.mark.parametrize("num_heads", [1, 4])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_plain_stack_is_recovered_with_any_number_of_heads(
    compare_with_plain_stack, tolerances, placement, num_heads
):
    overrides = {"normalization.placement": placement, "model.num_heads": num_heads}
    assert compare_with_plain_stack(overrides) < tolerances["float64"]


@pytest.mark.parametrize("biases", [(), ("query",), ("key",), ("value",), ("output",), ("query", "value", "output")])
def test_the_plain_stack_is_recovered_with_any_attention_biases(compare_with_plain_stack, tolerances, biases):
    assert compare_with_plain_stack({"model.attention_biases": biases}) < tolerances["float64"]


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_plain_stack_is_recovered_without_affine_maps_and_biases(compare_with_plain_stack, tolerances, placement):
    overrides = {
        "normalization.placement": placement,
        "normalization.affine": "none",
        "model.feedforward_bias": False,
    }
    assert compare_with_plain_stack(overrides) < tolerances["float64"]


def vit_logits(model, config, images):
    """The Vision Transformer from raw pixels, in numpy."""
    pixels = (images / 255 - np.asarray(config.data.mean)) / np.asarray(config.data.std)
    tokens = linear(cut_patches(pixels, config.model.patch_size), read_linear(model.lift.linear))
    if config.model.position == "sincos":
        tokens = tokens + sincos_positions(2, 3, config.model.width)
    if config.model.pooling == "cls":
        first = np.broadcast_to(model.lift.class_token[...], (len(images), 1, config.model.width))
        tokens = np.concatenate([first, tokens], axis=1)
    if config.model.position == "learned":
        tokens = tokens + np.asarray(model.lift.positions[...])
    placement, eps = config.normalization.placement, config.normalization.eps
    norm = read_norm(model.normalization)
    u = layer_norm(tokens, norm, eps) if placement == "post" else tokens
    u = run_stack(
        u,
        read_layers(model.evolution),
        placement=placement,
        num_heads=config.model.num_heads,
        activation=config.model.activation,
        eps=eps,
    )
    u = layer_norm(u, norm, eps) if placement == "pre" else u
    pooled = u[:, 0] if config.model.pooling == "cls" else u.mean(1)
    return linear(pooled, read_linear(model.read_out))


@pytest.mark.parametrize("position", ["learned", "sincos"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_logits_from_raw_pixels_are_those_of_a_plain_vit(
    tiny_config, draw_weights, call_jitted, relative_difference, tolerances, placement, pooling, position
):
    config = tiny_config(
        {
            "model.dtype": "float64",
            "model.pooling": pooling,
            "model.position": position,
            "normalization.placement": placement,
        }
    )
    model = draw_weights(lambda: build_model(config, seed=0))
    images = np.random.default_rng(2).integers(0, 256, (3, 4, 6, 1)).astype(np.uint8)
    logits = call_jitted(lambda m, x: m(x), model, images)
    assert relative_difference(logits, vit_logits(model, config, images)) < tolerances["float64"]


def test_a_strang_step_is_half_attention_feedforward_half_attention(
    tiny_config, draw_weights, call_jitted, relative_difference, tolerances
):
    config = tiny_config({"model.dtype": "float64", "splitting.scheme": "strang", "splitting.horizon": 1.0})
    evolution = draw_weights(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    u = u0 = np.random.default_rng(1).standard_normal((3, 5, config.model.width))
    dt = 1.0 / 2
    for layer in read_layers(evolution):
        for fraction, is_attention in ((0.5, True), (1.0, False), (0.5, True)):
            v = layer_norm(u, layer["attention_norm" if is_attention else "feedforward_norm"], 1e-5)
            u = u + fraction * dt * (attention(v, layer, 2) if is_attention else feedforward(v, layer, "gelu"))
    received = call_jitted(lambda e, u: e(u)[0], evolution, u0)
    assert relative_difference(received, u) < tolerances["float64"]
