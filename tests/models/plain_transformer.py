"""Pre-norm and post-norm Transformer stacks in plain numpy, written from the papers and not from `ctt`."""

import numpy as np
from scipy.special import erf

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
}


def layer_norm(x, norm, eps):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    v = (x - mean) / np.sqrt(variance + eps)
    return v if norm is None else v * norm["scale"] + norm["bias"]


def linear(x, weights):
    y = np.einsum("...i,ij->...j", x, weights["kernel"])
    return y if weights.get("bias") is None else y + weights["bias"]


def attention(x, layer, num_heads):
    """Each head by itself, its result through its own rows of the output matrix, then the sum over heads."""
    size = x.shape[-1] // num_heads
    query, key, value = (linear(x, layer[name]) for name in ("query", "key", "value"))
    total = np.zeros_like(x)
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        scores = np.einsum("bid,bjd->bij", query[..., part], key[..., part]) / np.sqrt(size)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("bij,bjd->bid", weights, value[..., part])
        total += mixed @ layer["output"]["kernel"][part]
    return total if layer["output"].get("bias") is None else total + layer["output"]["bias"]


def feedforward(x, layer, activation):
    return linear(ACTIVATIONS[activation](linear(x, layer["expand"])), layer["contract"])


def run_layer(x, layer, *, placement, num_heads, activation, eps):
    if placement == "pre":
        x = x + attention(layer_norm(x, layer["attention_norm"], eps), layer, num_heads)
        return x + feedforward(layer_norm(x, layer["feedforward_norm"], eps), layer, activation)
    x = layer_norm(x + attention(x, layer, num_heads), layer["attention_norm"], eps)
    return layer_norm(x + feedforward(x, layer, activation), layer["feedforward_norm"], eps)


def run_stack(x, layers, **options):
    for layer in layers:
        x = run_layer(x, layer, **options)
    return x


def cut_patches(images, size):
    """Patches row by row, each flattened row by row."""
    _, height, width, _ = images.shape
    patches = [
        images[:, row : row + size, column : column + size].reshape(images.shape[0], -1)
        for row in range(0, height, size)
        for column in range(0, width, size)
    ]
    return np.stack(patches, axis=1)


def sincos_positions(rows, columns, width):
    """Sines and cosines of the row in the first half of the features, of the column in the second."""
    quarter = width // 4
    table = np.zeros((rows * columns, width))
    for row in range(rows):
        for column in range(columns):
            for i in range(quarter):
                rate = 10000.0 ** (-i / quarter)
                table[row * columns + column, i::quarter] = (
                    np.sin(row * rate),
                    np.cos(row * rate),
                    np.sin(column * rate),
                    np.cos(column * rate),
                )
    return table


def read_linear(module):
    return {
        "kernel": np.asarray(module.kernel[...]),
        "bias": None if module.bias is None else np.asarray(module.bias[...]),
    }


def read_norm(module):
    if module.scale is None:
        return None
    return {"scale": np.asarray(module.scale[...]), "bias": np.asarray(module.bias[...])}


def read_layers(evolution):
    """Return the weights of each step of an `Evolution` as plain dictionaries."""
    operators = evolution.controls.operators
    mixing, local = operators["attention"], operators["feedforward"]
    stacked = {name: read_linear(getattr(mixing.operator, name)) for name in ("query", "key", "value", "output")}
    stacked |= {name: read_linear(getattr(local.operator, name)) for name in ("expand", "contract")}
    stacked |= {"attention_norm": read_norm(mixing.normalization), "feedforward_norm": read_norm(local.normalization)}

    def take(part, k):
        return None if part is None else {name: x if x is None else x[k] for name, x in part.items()}

    return [{name: take(part, k) for name, part in stacked.items()} for k in range(evolution.steps)]
