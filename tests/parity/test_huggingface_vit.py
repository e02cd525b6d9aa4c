"""`transformers.ViTForImageClassification` with the same weights: a published ViT, from pixels to logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.models import build_model

torch = pytest.importorskip("torch", reason="parity with Hugging Face needs torch: pip install 'ctt-jax[parity]'")
# The weights have had their present names since 5.9.
transformers = pytest.importorskip(
    "transformers",
    minversion="5.9",
    reason="parity with Hugging Face needs transformers: pip install 'transformers>=5.9'",
)

pytestmark = pytest.mark.parity

# Largest difference between two logits of order one: two libraries sum in different orders.
TOLERANCES = {"float32": 1e-4, "float64": 1e-9}

# ViT-B/16, narrower and on smaller images.
PUBLISHED = {
    "image_size": (32, 32),
    "patch_size": 8,
    "num_channels": 3,
    "hidden_size": 48,
    "num_hidden_layers": 12,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "num_labels": 10,
    "layer_norm_eps": 1e-12,
}

# The image is no square, so that rows and columns are told apart, and eps is large enough to be seen.
ODD = {
    "image_size": (12, 20),
    "patch_size": 4,
    "num_channels": 1,
    "hidden_size": 20,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "intermediate_size": 28,
    "num_labels": 7,
    "layer_norm_eps": 1e-3,
}

CASES = {
    "published": PUBLISHED,
    "published without query, key and value biases": {**PUBLISHED, "qkv_bias": False},
    "odd": ODD,
}

# Mean and standard deviation of each channel; a grey image takes the first ones.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def build_theirs(case, dtype):
    """Return a Hugging Face ViT with every weight drawn at random."""
    # Their own attention, `eager`, has a float32 softmax at any precision; torch's has not.
    config = transformers.ViTConfig(**case, attn_implementation="sdpa")
    theirs = transformers.ViTForImageClassification(config).to(getattr(torch, dtype)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            # Kernels keep the size of what they map; scales differ from 1 and biases from 0, so that a test sees them.
            is_kernel = weight.ndim in (2, 4)
            size = weight[0].numel() ** -0.5 if is_kernel else 0.3
            centre = 1.0 if "layernorm" in name and name.endswith("weight") else 0.0
            weight.copy_(centre + size * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return theirs


def convert_weights(theirs):
    """Return the weights of a Hugging Face ViT, keyed by the paths of ours. Each weight is used exactly once."""
    weights = {name: value.detach().numpy() for name, value in theirs.named_parameters()}
    ours = {}

    def take_linear(path, name):
        """Torch keeps a linear map as `[out, in]`; ours is `[in, out]`."""
        linear = {(*path, "kernel"): weights.pop(f"{name}.weight").T}
        bias = weights.pop(f"{name}.bias", None)
        return linear if bias is None else linear | {(*path, "bias"): bias}

    def take_norm(path, name):
        return {(*path, "scale"): weights.pop(f"{name}.weight"), (*path, "bias"): weights.pop(f"{name}.bias")}

    def take_layer(name):
        attention, feedforward = ("attention", "operator"), ("feedforward", "operator")
        return {
            **take_linear((*attention, "query"), f"{name}.attention.q_proj"),
            **take_linear((*attention, "key"), f"{name}.attention.k_proj"),
            **take_linear((*attention, "value"), f"{name}.attention.v_proj"),
            **take_linear((*attention, "output"), f"{name}.attention.o_proj"),
            **take_linear((*feedforward, "expand"), f"{name}.mlp.fc1"),
            **take_linear((*feedforward, "contract"), f"{name}.mlp.fc2"),
            **take_norm(("attention", "normalization"), f"{name}.layernorm_before"),
            **take_norm(("feedforward", "normalization"), f"{name}.layernorm_after"),
        }

    # The convolution's `[width, channels, row, column]`, as a linear map of patches flattened row by row.
    patches = weights.pop("vit.embeddings.patch_embeddings.projection.weight").transpose(2, 3, 1, 0)
    ours["lift", "linear", "kernel"] = patches.reshape(-1, patches.shape[-1])
    ours["lift", "linear", "bias"] = weights.pop("vit.embeddings.patch_embeddings.projection.bias")
    ours["lift", "class_token"] = weights.pop("vit.embeddings.cls_token")[0, 0]
    ours["lift", "positions"] = weights.pop("vit.embeddings.position_embeddings")[0]
    layers = [take_layer(f"vit.layers.{n}") for n in range(theirs.config.num_hidden_layers)]
    for path in layers[0]:
        ours["evolution", "controls", "operators", *path] = np.stack([layer[path] for layer in layers])
    ours |= take_norm(("normalization",), "vit.layernorm")
    ours |= take_linear(("read_out",), "classifier")
    assert not weights
    return ours


def build_ours(config, weights):
    """Return our model with the weights given by path."""
    model = nnx.eval_shape(lambda: build_model(config, seed=0))
    flat = dict(nnx.to_flat_state(nnx.state(model)))
    assert {path: leaf.shape for path, leaf in flat.items()} == {path: w.shape for path, w in weights.items()}
    filled = [(path, leaf.replace(jnp.asarray(weights[path], leaf.dtype))) for path, leaf in flat.items()]
    nnx.update(model, nnx.from_flat_state(filled))
    return model


@pytest.fixture
def logits_of_both(tiny_config, call_jitted):
    """Return the logits of our model and of theirs, for the same weights and raw pixels."""

    def compute(case, dtype):
        theirs = build_theirs(case, dtype)
        channels, has_bias = case["num_channels"], theirs.config.qkv_bias
        mean, std = MEAN[:channels], STD[:channels]
        config = tiny_config(
            {
                "data.image_shape": (*case["image_size"], channels),
                "data.num_classes": case["num_labels"],
                "data.mean": mean,
                "data.std": std,
                "model.patch_size": case["patch_size"],
                "model.width": case["hidden_size"],
                "model.num_heads": case["num_attention_heads"],
                "model.feedforward_width": case["intermediate_size"],
                "model.activation": "gelu",
                "model.attention_biases": ("query", "key", "value", "output") if has_bias else ("output",),
                "model.position": "learned",
                "model.pooling": "cls",
                "model.dtype": dtype,
                "normalization.placement": "pre",
                "normalization.affine": "elementwise",
                "normalization.eps": theirs.config.layer_norm_eps,
                "splitting.scheme": "lie",
                "splitting.substep": "euler",
                "splitting.steps": case["num_hidden_layers"],
            }
        )
        images = np.random.default_rng(1).integers(0, 256, (3, *config.data.image_shape)).astype(np.uint8)
        with jax.default_matmul_precision("highest"):
            ours = call_jitted(lambda m, x: m(x), build_ours(config, convert_weights(theirs)), images)
        with torch.no_grad():
            pixels = torch.from_numpy(images).to(theirs.dtype)
            pixels = (pixels / 255 - torch.tensor(mean, dtype=theirs.dtype)) / torch.tensor(std, dtype=theirs.dtype)
            expected = theirs(pixels.permute(0, 3, 1, 2)).logits.numpy()
        assert ours.dtype == expected.dtype == dtype
        return np.asarray(ours), expected

    return compute


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_the_hugging_face_vit(logits_of_both, case):
    received, expected = logits_of_both(case, "float32")
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOLERANCES["float32"])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_the_hugging_face_vit_in_float64(logits_of_both, case):
    received, expected = logits_of_both(case, "float64")
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOLERANCES["float64"])
