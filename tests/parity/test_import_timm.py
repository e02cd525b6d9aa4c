"""ViTs of timm itself, saved by timm and imported: the same logits, and an export that timm loads."""

import jax
import numpy as np
import pytest

from ctt.config import InputError
from ctt.interchange import export_notes, export_weights, import_weights

torch = pytest.importorskip("torch", reason="parity with timm needs torch: pip install 'ctt-jax[parity]'")
timm = pytest.importorskip("timm", reason="parity with timm needs timm: pip install timm")

pytestmark = pytest.mark.parity

# The sizes of ViT-Ti/16, shallower, and others.
SMALL = {"img_size": 64, "embed_dim": 192, "depth": 3, "num_heads": 3, "num_classes": 6}
ODD = {
    "img_size": (12, 20),
    "patch_size": 4,
    "in_chans": 1,
    "embed_dim": 20,
    "depth": 5,
    "num_heads": 4,
    "mlp_ratio": 1.45,
    "num_classes": 7,
    "qkv_bias": False,
    "act_layer": "relu",
}
MEAN = {**ODD, "class_token": False, "global_pool": "avg", "fc_norm": False}
CASES = {"small": SMALL, "odd": ODD, "mean": MEAN}


@pytest.fixture
def save_theirs(randomize_torch, tmp_path):
    """Return a function that saves a ViT with random weights as timm does for the Hub."""

    def save(arguments):
        theirs = timm.create_model("vit_base_patch16_224", pretrained=False, **arguments)
        theirs = randomize_torch(theirs)
        timm.models.save_for_hf(theirs, tmp_path / "theirs", model_args=arguments, safe_serialization=True)
        return theirs, tmp_path / "theirs"

    return save


def compare_logits(theirs, imported, call_jitted):
    data = imported.config.data
    images = np.random.default_rng(1).integers(0, 256, (3, *data.image_shape)).astype(np.uint8)
    with jax.default_matmul_precision("highest"):
        received = np.asarray(call_jitted(lambda m, x: m(x), imported.model, images))
    with torch.no_grad():
        pixels = (torch.from_numpy(images) / 255 - torch.tensor(data.mean)) / torch.tensor(data.std)
        expected = theirs(pixels.permute(0, 3, 1, 2)).numpy()
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_the_original(save_theirs, call_jitted, arguments):
    theirs, folder = save_theirs(arguments)
    imported = import_weights(folder)
    assert imported.naming == "timm"
    compare_logits(theirs, imported, call_jitted)


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES.keys())
def test_timm_loads_an_export(save_theirs, read_tensors, assert_same_tensors, call_jitted, tmp_path, arguments):
    _, folder = save_theirs(arguments)
    imported = import_weights(folder)
    exported = export_weights(imported.config, imported.model, "timm", tmp_path / "back")
    assert_same_tensors(read_tensors(exported), read_tensors(folder))
    assert export_notes(imported.config, "timm") == []
    compare_logits(timm.create_model(f"local-dir:{exported}", pretrained=True).eval(), imported, call_jitted)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"global_pool": "avg"}, "fc_norm, which follows it"),
        ({"global_pool": "avg", "fc_norm": False}, "`global_pool` must be token with a class token, got 'avg'"),
        ({"init_values": 0.1}, "ls1.gamma"),
        ({"qk_norm": True}, "q_norm"),
        ({"reg_tokens": 2}, "reg_token"),
        ({"act_layer": "silu"}, "The activation must be one of"),
        ({"pre_norm": True}, "norm_pre"),
    ],
)
def test_a_vit_of_another_form_is_refused_by_name(save_theirs, arguments, match):
    _, folder = save_theirs({**SMALL, **arguments})
    with pytest.raises(InputError, match=match):
        import_weights(folder)
