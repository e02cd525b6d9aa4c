"""`transformers.CvtForImageClassification` as a file, imported: the same logits, and the same tensors back."""

import jax
import numpy as np
import pytest

from ctt.interchange import export_weights, import_weights

torch = pytest.importorskip("torch", reason="parity with Hugging Face needs torch: pip install 'ctt-jax[parity]'")
transformers = pytest.importorskip("transformers", minversion="5.9", reason="parity needs transformers >= 5.9")

pytestmark = pytest.mark.parity

TOLERANCES = {"float32": 1e-4, "float64": 1e-9}


def case(count=3, **changes):
    """Return the fields of a CvT, those that do not change being the published ones."""
    values = {
        "patch_sizes": (7, 3, 3),
        "patch_stride": (4, 2, 2),
        "patch_padding": (2, 1, 1),
        "embed_dim": (8, 24, 48),
        "num_heads": (1, 3, 6),
        "depth": (1, 2, 10),
        "mlp_ratio": (4.0,) * 3,
        "kernel_qkv": (3,) * 3,
        "padding_q": (1,) * 3,
        "padding_kv": (1,) * 3,
        "stride_q": (1,) * 3,
        "stride_kv": (2,) * 3,
        "qkv_bias": (True,) * 3,
        "cls_token": (False, False, True),
        "num_labels": 5,
        **changes,
    }
    rates = {name: (0.0,) * count for name in ("attention_drop_rate", "drop_rate", "drop_path_rate")}
    return {**values, **rates, "qkv_projection_method": ("dw_bn",) * count}


ODD = case(
    2,
    patch_sizes=(5, 2),
    patch_stride=(3, 2),
    patch_padding=(2, 0),
    embed_dim=(12, 20),
    num_heads=(3, 4),
    depth=(3, 2),  # transformers wants a stage to have at least as many layers as its number.
    mlp_ratio=(2.5, 1.0),
    kernel_qkv=(5, 3),
    padding_q=(2, 1),
    padding_kv=(1, 1),
    stride_q=(1, 1),
    stride_kv=(3, 1),
    qkv_bias=(False, False),
    cls_token=(False, True),
    num_channels=1,
    num_labels=7,
)
# Published sizes on small images, narrower: CvT-13 and, in depth, CvT-21.
CASES = {
    "cvt-13": (case(), (32, 32)),
    "cvt-21, not square": (case(depth=(1, 4, 16)), (32, 48)),
    "odd": (ODD, (18, 24)),
    "mean of the tokens": ({**ODD, "cls_token": (False, False)}, (18, 24)),
}


@pytest.fixture
def save_theirs(randomize_torch, tmp_path):
    def save(fields, dtype="float32"):
        theirs = transformers.CvtForImageClassification(transformers.CvtConfig(**fields))
        theirs = randomize_torch(theirs.to(getattr(torch, dtype)))
        theirs.save_pretrained(tmp_path / "theirs")
        return theirs, tmp_path / "theirs"

    return save


def logits_of_both(theirs, imported, call_jitted):
    data = imported.config.data
    images = np.random.default_rng(1).integers(0, 256, (2, *data.image_shape)).astype(np.uint8)
    with jax.default_matmul_precision("highest"):
        received = np.asarray(call_jitted(lambda m, x: m(x), imported.model, images))
    with torch.no_grad():
        pixels = torch.from_numpy(images).to(theirs.dtype) / 255
        pixels = (pixels - torch.tensor(data.mean, dtype=theirs.dtype)) / torch.tensor(data.std, dtype=theirs.dtype)
        # Without a class token, transformers needs all hidden states to find its way to the logits.
        expected = theirs(pixels.permute(0, 3, 1, 2), output_hidden_states=True).logits.numpy()
    return received, expected


@pytest.mark.parametrize(("fields", "size"), CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_the_original(save_theirs, call_jitted, fields, size):
    theirs, folder = save_theirs(fields)
    received, expected = logits_of_both(theirs, import_weights(folder, image_size=size), call_jitted)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOLERANCES["float32"])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("fields", "size"), CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_the_original_in_float64(save_theirs, call_jitted, fields, size):
    theirs, folder = save_theirs(fields, "float64")
    imported = import_weights(folder, image_size=size, dtype="float64")
    received, expected = logits_of_both(theirs, imported, call_jitted)
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOLERANCES["float64"])


@pytest.mark.parametrize(("fields", "size"), [CASES["cvt-13"], CASES["odd"]], ids=["cvt-13", "odd"])
def test_an_export_gives_back_the_same_tensors(save_theirs, read_tensors, assert_same_tensors, tmp_path, fields, size):
    _, folder = save_theirs(fields)
    imported = import_weights(folder, image_size=size)
    exported = export_weights(
        imported.config, imported.model, "huggingface", tmp_path / "back", counters=imported.counters
    )
    assert_same_tensors(read_tensors(exported), read_tensors(folder))
    assert import_weights(exported, image_size=size).config == imported.config


def test_counters_are_kept_and_else_0(save_theirs, read_tensors, tmp_path):
    _, folder = save_theirs(ODD)
    imported = import_weights(folder, image_size=(18, 24))
    name = next(iter(imported.counters))
    assert imported.counters[name] == 3
    exported = export_weights(imported.config, imported.model, "huggingface", tmp_path / "back")
    assert read_tensors(exported)[name] == 0


def test_transformers_loads_an_export(save_theirs, tmp_path):
    theirs, folder = save_theirs(ODD)
    imported = import_weights(folder, image_size=(18, 24))
    exported = export_weights(imported.config, imported.model, "huggingface", tmp_path / "back")
    loaded = transformers.CvtForImageClassification.from_pretrained(exported).eval()
    pixels = torch.randn(2, 1, 18, 24, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(loaded(pixels).logits, theirs(pixels).logits, rtol=0, atol=1e-6)
