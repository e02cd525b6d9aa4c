"""`torch.nn.TransformerEncoderLayer` with the same weights, an implementation that we did not write."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.models import Evolution
from ctt.models.operators import build_operators

torch = pytest.importorskip("torch", reason="parity with PyTorch needs torch: pip install 'ctt-jax[parity]'")

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("float64")]

# Two libraries sum in different orders.
TOLERANCE = 1e-10


def build_layers(config):
    """Return torch layers, one a step, with every weight drawn at random."""
    torch.manual_seed(0)
    layers = []
    for _ in range(config.splitting.steps):
        layer = torch.nn.TransformerEncoderLayer(
            config.model.width,
            config.model.num_heads,
            config.model.feedforward_width,
            dropout=0.0,
            activation=config.model.activation,
            layer_norm_eps=config.normalization.eps,
            batch_first=True,
            norm_first=config.normalization.placement == "pre",
            dtype=torch.float64,
        )
        with torch.no_grad():
            for weight in layer.parameters():
                weight.add_(0.3 * torch.randn_like(weight))
        layers.append(layer)
    return layers


def convert_layer(layer):
    """Return the weights of a torch layer, keyed by the paths of ours."""
    weights = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    attention, feedforward = ("attention", "operator"), ("feedforward", "operator")
    kernels = np.split(weights["self_attn.in_proj_weight"], 3)
    biases = np.split(weights["self_attn.in_proj_bias"], 3)
    ours = {}
    for name, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True):
        ours |= {(*attention, name, "kernel"): kernel.T, (*attention, name, "bias"): bias}
    for path, theirs in (
        ((*attention, "output"), "self_attn.out_proj"),
        ((*feedforward, "expand"), "linear1"),
        ((*feedforward, "contract"), "linear2"),
    ):
        ours |= {(*path, "kernel"): weights[f"{theirs}.weight"].T, (*path, "bias"): weights[f"{theirs}.bias"]}
    for name, theirs in (("attention", "norm1"), ("feedforward", "norm2")):
        ours[name, "normalization", "scale"] = weights[f"{theirs}.weight"]
        ours[name, "normalization", "bias"] = weights[f"{theirs}.bias"]
    return ours


def build_evolution(config, layers):
    """Return the `Evolution` with the weights of the torch layers."""
    evolution = nnx.eval_shape(lambda: Evolution(config, build_operators(config), key=jax.random.key(0)))
    converted = [convert_layer(layer) for layer in layers]
    flat = nnx.to_flat_state(nnx.state(evolution.controls.operators))
    filled = [(path, leaf.replace(jnp.stack([layer[path] for layer in converted]))) for path, leaf in flat]
    assert {path for path, _ in filled} == set(converted[0])
    nnx.update(evolution.controls.operators, nnx.from_flat_state(filled))
    return evolution


@pytest.fixture(params=[(p, a, n) for p in ("pre", "post") for a in ("relu", "gelu") for n in (1, 3)], ids=str)
def pair(request, tiny_config):
    """Torch layers and the `Evolution` with their weights."""
    placement, activation, steps = request.param
    config = tiny_config(
        {
            "model.dtype": "float64",
            "model.num_heads": 4,
            "model.activation": activation,
            "normalization.placement": placement,
            "normalization.eps": 1e-5,
            "splitting.steps": steps,
        }
    )
    layers = build_layers(config)
    return layers, build_evolution(config, layers)


def test_evolution_equals_the_torch_layers(pair, call_jitted, relative_difference):
    layers, evolution = pair
    u0 = np.random.default_rng(1).standard_normal((3, 5, 8))
    expected = torch.nn.Sequential(*layers)(torch.from_numpy(u0)).detach().numpy()
    received = call_jitted(lambda e, u: e(u)[0], evolution, u0)
    assert relative_difference(received, expected) < TOLERANCE


def test_the_gradient_with_respect_to_the_initial_state_equals_that_of_the_torch_layers(
    pair, call_jitted, relative_difference
):
    layers, evolution = pair
    u0, weights = np.random.default_rng(1).standard_normal((2, 3, 5, 8))
    leaf = torch.from_numpy(u0).requires_grad_()
    (torch.nn.Sequential(*layers)(leaf) * torch.from_numpy(weights)).sum().backward()
    received = call_jitted(lambda e, u: jax.grad(lambda v: jnp.sum(e(v)[0] * weights))(u), evolution, u0)
    assert relative_difference(received, leaf.grad.numpy()) < TOLERANCE
