"""Published ViTs as files, imported: the same logits, and the same tensors back."""

import jax
import numpy as np
import pytest

from ctt.config import InputError
from ctt.interchange import export_weights, import_weights
from ctt.interchange.positions import interpolate_positions

torch = pytest.importorskip("torch", reason="parity with Hugging Face needs torch: pip install 'ctt-jax[parity]'")
transformers = pytest.importorskip("transformers", minversion="5.9", reason="parity needs transformers >= 5.9")

pytestmark = pytest.mark.parity

TOLERANCES = {"float32": 1e-4, "float64": 1e-9}

# ViT-B/16 on 224 x 224 pixels, narrower.
PUBLISHED = {
    "image_size": 224,
    "patch_size": 16,
    "hidden_size": 48,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 192,
    "num_labels": 5,
}
ODD = {
    "image_size": [12, 20],
    "patch_size": 4,
    "num_channels": 1,
    "hidden_size": 20,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "intermediate_size": 28,
    "num_labels": 7,
    "layer_norm_eps": 1e-3,
    "qkv_bias": False,
}
RELU = {**ODD, "hidden_act": "relu", "qkv_bias": True, "num_attention_heads": 1, "image_size": [8, 4]}
CASES = {"published": PUBLISHED, "odd": ODD, "relu": RELU}
NAMINGS = ("huggingface", "transformers", "timm")


def adapt(case, naming):
    """Return the case with the eps that timm has built in."""
    return {**case, "layer_norm_eps": 1e-6} if naming == "timm" else case


def to_timm(tensors):
    """Return the tensors of a Hugging Face ViT in memory as timm calls them."""
    renamed = {}
    for name, tensor in tensors.items():
        for ours, theirs in (
            ("vit.embeddings.patch_embeddings.projection", "patch_embed.proj"),
            ("vit.embeddings.cls_token", "cls_token"),
            ("vit.embeddings.position_embeddings", "pos_embed"),
            ("vit.layernorm", "norm"),
            ("vit.layers", "blocks"),
            ("layernorm_before", "norm1"),
            ("layernorm_after", "norm2"),
            ("attention.o_proj", "attn.proj"),
            ("classifier", "head"),
        ):
            name = name.replace(ours, theirs)
        renamed[name] = tensor
    for name in [name for name in renamed if ".attention.q_proj." in name]:
        parts = [renamed.pop(name.replace("q_proj", f"{letter}_proj")) for letter in "qkv"]
        renamed[name.replace("attention.q_proj", "attn.qkv")] = np.concatenate(parts)
    return renamed


@pytest.fixture
def build_theirs(randomize_torch):
    def build(case, dtype="float32"):
        config = transformers.ViTConfig(**case, attn_implementation="sdpa")
        return randomize_torch(transformers.ViTForImageClassification(config).to(getattr(torch, dtype)))

    return build


@pytest.fixture
def write_theirs(write_weights, tmp_path):
    """Return a function that writes a model under a naming."""

    def write(theirs, naming):
        if naming == "huggingface":
            theirs.save_pretrained(tmp_path / "hub")
            return tmp_path / "hub"
        tensors = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
        config = theirs.config.to_dict()
        if naming == "timm":  # Its layers have an eps of their own, which no config says.
            arguments = {"num_heads": config["num_attention_heads"], "img_size": config["image_size"]}
            act = {} if config["hidden_act"] == "gelu" else {"act_layer": config["hidden_act"]}
            return write_weights(to_timm(tensors), {"model_args": {**arguments, **act}})
        return write_weights(tensors, config)

    return write


def logits_of_both(theirs, imported, call_jitted):
    data = imported.config.data
    images = np.random.default_rng(1).integers(0, 256, (3, *data.image_shape)).astype(np.uint8)
    with jax.default_matmul_precision("highest"):
        received = np.asarray(call_jitted(lambda m, x: m(x), imported.model, images))
    with torch.no_grad():
        pixels = torch.from_numpy(images).to(theirs.dtype) / 255
        pixels = (pixels - torch.tensor(data.mean, dtype=theirs.dtype)) / torch.tensor(data.std, dtype=theirs.dtype)
        expected = theirs(pixels.permute(0, 3, 1, 2)).logits.numpy()
    return received, expected


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_the_original(build_theirs, write_theirs, call_jitted, case, naming):
    theirs = build_theirs(adapt(case, naming))
    imported = import_weights(write_theirs(theirs, naming))
    assert imported.naming == naming
    received, expected = logits_of_both(theirs, imported, call_jitted)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOLERANCES["float32"])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_logits_are_those_of_the_original_in_float64(build_theirs, write_theirs, call_jitted, case, naming):
    theirs = build_theirs(adapt(case, naming), "float64")
    imported = import_weights(write_theirs(theirs, naming), dtype="float64")
    received, expected = logits_of_both(theirs, imported, call_jitted)
    assert received.dtype == expected.dtype == "float64"
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOLERANCES["float64"])


@pytest.mark.usefixtures("float64")
def test_a_timm_file_alone_has_heads_of_64_features(build_theirs, write_weights, call_jitted):
    case = {**PUBLISHED, "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "layer_norm_eps": 1e-6}
    theirs = build_theirs(case, "float64")
    tensors = to_timm({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
    imported = import_weights(write_weights(tensors), dtype="float64")
    received, expected = logits_of_both(theirs, imported, call_jitted)
    np.testing.assert_allclose(received, expected, rtol=0, atol=TOLERANCES["float64"])
    other = import_weights(write_weights(tensors, name="again"), dtype="float64", num_heads=4)
    assert np.abs(logits_of_both(theirs, other, call_jitted)[0] - expected).max() > 1e-3


@pytest.mark.parametrize("naming", ["huggingface", "timm"])
@pytest.mark.parametrize("case", [PUBLISHED, {**ODD, "qkv_bias": True}, ODD], ids=["published", "odd", "no bias"])
def test_an_export_gives_back_the_same_tensors(
    build_theirs, write_theirs, read_tensors, assert_same_tensors, tmp_path, case, naming
):
    folder = write_theirs(build_theirs(case), naming)
    imported = import_weights(folder)
    exported = export_weights(imported.config, imported.model, naming, tmp_path / "back")
    assert_same_tensors(read_tensors(exported), read_tensors(folder))
    again = import_weights(exported)
    assert again.config == imported.config


def test_transformers_loads_an_export(build_theirs, write_theirs, tmp_path):
    theirs = build_theirs({**ODD, "qkv_bias": True})
    imported = import_weights(write_theirs(theirs, "transformers"))
    names = list("abcdefg")
    exported = export_weights(imported.config, imported.model, "huggingface", tmp_path / "back", class_names=names)
    loaded = transformers.ViTForImageClassification.from_pretrained(exported).eval()
    assert loaded.config.id2label[2] == "c"
    processor = transformers.ViTImageProcessor.from_pretrained(exported)
    assert (processor.size["height"], processor.size["width"]) == (12, 20)
    assert list(processor.image_mean) == list(imported.config.data.mean)
    pixels = torch.randn(2, 1, 12, 20, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(loaded(pixels).logits, theirs(pixels).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth"])
def test_a_torch_file_is_read(build_theirs, tmp_path, suffix):
    theirs = build_theirs(ODD)
    path = tmp_path / f"pytorch_model{suffix}"
    torch.save({"state_dict": theirs.state_dict()} if suffix == ".pth" else theirs.state_dict(), path)
    theirs.config.to_json_file(tmp_path / "config.json")
    kernel = import_weights(path).model.read_out.kernel[...]
    np.testing.assert_array_equal(kernel, theirs.classifier.weight.detach().numpy().T)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_widened_exactly(build_theirs, write_theirs, dtype):
    theirs = build_theirs(ODD, dtype)
    kernel = import_weights(write_theirs(theirs, "huggingface")).model.read_out.kernel[...]
    assert kernel.dtype == np.float32
    np.testing.assert_array_equal(kernel, theirs.classifier.weight.detach().float().numpy().T)


def test_the_closing_pooler_is_left_out_and_named(build_theirs, write_weights):
    theirs = build_theirs(ODD)
    tensors = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    tensors["vit.pooler.dense.weight"] = np.zeros((20, 20), np.float32)
    imported = import_weights(write_weights(tensors, theirs.config.to_dict()))
    assert "vit.pooler.dense.weight" in imported.notes[0]


class Malicious:
    def __reduce__(self):
        return (print, ("this must not run",))


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_that_would_run_code_is_refused(tmp_path, capfd, is_zip):
    path = tmp_path / "model.pt"
    torch.save({"weight": Malicious()}, path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(InputError, match="would run code"):
        import_weights(path)
    assert "must not run" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "must be a whole PyTorch file"),
        (b"PK\x03\x04 truncated", "must be a whole PyTorch file"),
        (b"not a pickle at all", "must be a PyTorch file, got something else"),
    ],
    ids=["empty", "truncated", "text"],
)
def test_a_damaged_torch_file_is_refused(tmp_path, content, match):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=match):
        import_weights(path)


def test_a_torch_file_cut_in_half_is_refused(build_theirs, tmp_path):
    path = tmp_path / "model.pt"
    torch.save(build_theirs(ODD).state_dict(), path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match="must be a whole PyTorch file"):
        import_weights(path)


@pytest.mark.parametrize("value", [torch.zeros(2, 2).to_sparse(), torch.zeros(2, 2).to(torch.float8_e4m3fn)])
def test_a_torch_file_of_quantised_tensors_is_refused(tmp_path, value):
    path = tmp_path / "model.pt"
    torch.save({"weight": value}, path)
    with pytest.raises(InputError, match="Give unquantised weights"):
        import_weights(path)


@pytest.mark.parametrize("value", [[1, 2], {"a": 3}, {"a": {"b": "text"}}, {1: torch.zeros(2)}])
def test_a_torch_file_without_tensors_is_refused(tmp_path, value):
    path = tmp_path / "model.pt"
    torch.save(value, path)
    with pytest.raises(InputError, match="dictionary of tensors"):
        import_weights(path)


@pytest.fixture
def interpolated_by_both():
    """Return a function that interpolates the same noise to another mesh, by us and by torch."""

    def interpolate(new_grid, **options):
        positions = np.random.default_rng(0).standard_normal((1 + 14 * 14, 3)).astype(np.float32)
        received = np.asarray(interpolate_positions(positions, (14, 14), new_grid, num_prefix_tokens=1))
        np.testing.assert_array_equal(received[0], positions[0])
        mesh = torch.from_numpy(positions[1:].reshape(1, 14, 14, 3)).permute(0, 3, 1, 2)
        expected = torch.nn.functional.interpolate(mesh, new_grid, mode="bicubic", **options)
        return received[1:].reshape(*new_grid, 3), expected[0].permute(1, 2, 0).numpy()

    return interpolate


@pytest.mark.parametrize("new_grid", [(24, 20), (28, 28), (14, 15)])
def test_positions_on_a_finer_mesh_are_those_of_timm(interpolated_by_both, new_grid):
    received, expected = interpolated_by_both(new_grid, align_corners=False, antialias=True)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("new_grid", [(24, 20), (7, 10)])
def test_positions_are_nearly_those_of_transformers(interpolated_by_both, new_grid):
    """The same centres, and -0.5 in place of -0.75 in the cubic kernel, which white noise shows most."""

    def difference(**options):
        received, expected = interpolated_by_both(new_grid, **options)
        return np.abs(received - expected)[2:-2, 2:-2].mean()

    assert difference(align_corners=False) < 0.1
    assert difference(align_corners=True) > 1.5 * difference(align_corners=False)
