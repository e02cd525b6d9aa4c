"""From a file to a config and a model: what is inferred, and what is refused with its name."""

import numpy as np
import pytest

from ctt.config import InputError
from ctt.interchange import export_weights, import_weights

FORMATS = ("timm", "huggingface")


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"data.image_shape": (8, 12, 3), "data.mean": (0.1, 0.2, 0.3), "data.std": (0.4, 0.5, 0.6)},
        {"model.attention_biases": ("output",), "model.activation": "relu", "model.num_heads": 1},
        {"model.activation": "gelu_tanh", "normalization.eps": 1e-12, "model.feedforward_width": 61, "model.width": 14},
    ],
    ids=["plain", "not square", "no biases", "odd widths"],
)
def test_the_config_of_an_export_is_that_of_the_run(build_vit, tmp_path, assert_same_state, file_format, overrides):
    config, model = build_vit(overrides)
    names = [f"class {n}" for n in range(10)]
    folder = export_weights(config, model, file_format, tmp_path / "out", class_names=names)
    imported = import_weights(folder)
    for part in ("model", "normalization", "splitting", "controls"):
        assert getattr(imported.config, part) == getattr(config, part)
    received, expected = imported.config.data, config.data
    assert (received.image_shape, received.num_classes) == (expected.image_shape, expected.num_classes)
    np.testing.assert_allclose([*received.mean, *received.std], [*expected.mean, *expected.std], rtol=1e-12)
    assert imported.class_names == tuple(names)
    assert imported.naming == file_format
    assert imported.notes == ()
    assert_same_state(imported.model, model)


def test_a_cvt_comes_back(build_cvt, tmp_path, assert_same_state):
    config, model = build_cvt()
    imported = import_weights(export_weights(config, model, "huggingface", tmp_path / "out"), image_size=(8, 12))
    assert (imported.config.model, imported.config.splitting) == (config.model, config.splitting)
    assert_same_state(imported.model, model)
    assert set(imported.counters.values()) == {0}
    assert len(imported.counters) == 3 * 3


def test_the_mean_of_the_tokens_is_read_from_timm(vit_folder):
    imported = import_weights(vit_folder("timm", {"model.pooling": "mean"}))
    assert imported.config.model.pooling == "mean"


def test_the_origin_has_no_folder_in_it(vit_folder):
    folder = vit_folder()
    origin = import_weights(folder / "model.safetensors").origin
    assert origin["file"] == "model.safetensors"
    assert origin["naming"] == "huggingface"
    assert origin["architecture"] == "vit"
    assert len(origin["sha256"]) == 64


def test_a_file_alone_is_enough_where_its_heads_are_known(vit_folder):
    folder = vit_folder("timm", {"model.num_heads": 4})
    (folder / "config.json").unlink()
    imported = import_weights(folder, num_heads=4)
    assert imported.config.model.num_heads == 4
    assert imported.config.normalization.eps == 1e-6
    assert (imported.config.data.mean, imported.config.data.std) == ((0.5,), (0.5,))
    assert imported.class_names == tuple("0123456789")
    with pytest.raises(InputError, match=r"heads must divide the width 8, got none.*pass --num-heads"):
        import_weights(folder)


def test_the_image_size_is_needed_where_the_patches_make_no_square(vit_folder):
    folder = vit_folder("timm", {"data.image_shape": (8, 16, 1)})
    (folder / "config.json").unlink()
    assert import_weights(folder, num_heads=2, image_size=(8, 16)).config.data.image_shape == (8, 16, 1)
    with pytest.raises(InputError, match=r"must give 8 patches of side 4.*--image-size"):
        import_weights(folder, num_heads=2)


def test_64_bits_are_rounded_and_said_so(vit_folder, edit_tensors):
    folder = vit_folder()
    edit_tensors(folder, {"classifier.bias": np.arange(10.0)})
    assert import_weights(folder).notes == ("The weights are of 64 bits in the file, and were rounded to 32.",)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"classifier.weight": None}, "must have the tensor classifier.weight with 2 axes, which is missing"),
        ({"classifier.bias": None}, "lacks classifier.bias"),
        ({"vit.layernorm.bias": None}, "lacks vit.layernorm.bias"),
        ({"vit.embeddings.cls_token": None}, "lacks vit.embeddings.cls_token"),
        ({"vit.embeddings.position_embeddings": np.zeros((5, 8), np.float32)}, r"3 axes, which has the shape \[5, 8\]"),
        ({"vit.embeddings.position_embeddings": np.zeros((1, 0, 8), np.float32)}, r"the shape \[1, 0, 8\]"),
        ({"vit.embeddings.position_embeddings": np.zeros((1, 4, 8), np.float32)}, "must give 3 patches of side 4"),
        ({"vit.encoder.layer.1.output.dense.bias": np.zeros(9, np.float32)}, r"dense.bias \[9\] instead of \[8\]"),
        (
            {"vit.encoder.layer.1.attention.output.dense.weight": None},
            "numbered without a gap, but .*layer.1.* is miss",
        ),
        ({"vit.encoder.layer.7.attention.output.dense.weight": np.zeros((8, 8), np.float32)}, "layer.3.* is missing"),
        ({"vit.encoder.layer.1.attention.attention.query.weight": None}, "lacks vit.encoder.layer.1.attention.attent"),
        ({"vit.encoder.layer.3.output.dense.bias": np.zeros(8, np.float32)}, "unknown vit.encoder.layer.3.output"),
        ({"vit.embeddings.mask_token": np.zeros((1, 1, 8), np.float32)}, "has the unknown vit.embeddings.mask_token"),
        ({"classifier.bias": np.zeros(10, np.int8)}, r"classifier.bias \[10\] of int8 instead of \[10\]"),
        (
            {"vit.embeddings.patch_embeddings.projection.weight": np.zeros((8, 1, 4, 2), np.float32)},
            "Patches must be square, got 4 x 2",
        ),
        (
            {"vit.embeddings.patch_embeddings.projection.weight": np.zeros((8, 1, 0, 0), np.float32)},
            r"which has the shape \[8, 1, 0, 0\]",
        ),
    ],
)
def test_tensors_that_do_not_make_a_vit_are_refused(vit_folder, edit_tensors, changes, match):
    folder = vit_folder()
    edit_tensors(folder, changes)
    with pytest.raises(InputError, match=match):
        import_weights(folder)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model_type": "deit"}, "`model_type` must be vit or cvt, got 'deit'"),
        ({"hidden_size": 16}, "`hidden_size` of config.json must be that of the tensors, which is 8, got 16"),
        ({"num_hidden_layers": 12}, "`num_hidden_layers` of config.json must be that of the tensors, which is 3"),
        ({"qkv_bias": False}, "`qkv_bias` of config.json must be that of the tensors, which is True"),
        ({"hidden_act": "silu"}, "activation must be one of gelu, relu"),
        ({"hidden_act": ["gelu"]}, "`hidden_act` beside the weights has a value that cannot be used"),
        ({"num_attention_heads": 3}, "heads must divide the width 8, got 3"),
        ({"num_attention_heads": "two"}, "`num_attention_heads` beside the weights"),
        ({"num_attention_heads": True}, "`num_attention_heads` beside the weights"),
        ({"num_attention_heads": -2}, "heads must divide the width 8, got -2"),
        ({"layer_norm_eps": "small"}, "`layer_norm_eps` beside the weights"),
        ({"layer_norm_eps": float("nan")}, "`layer_norm_eps` beside the weights"),
        ({"layer_norm_eps": 10**400}, "`layer_norm_eps` beside the weights"),
        ({"num_attention_heads": 2**31}, "`num_attention_heads` beside the weights"),
        ({"layer_norm_eps": -1.0}, "`normalization.eps` must be >= 0"),
        ({"image_size": [8, 8, 8]}, "`image_size` of config.json must be a height and a width"),
        ({"image_size": "8"}, "`image_size` beside the weights"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(vit_folder, edit_json, changes, match):
    folder = vit_folder()
    edit_json(folder / "config.json", changes)
    with pytest.raises(InputError, match=match):
        import_weights(folder)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (np.full(10, np.nan, np.float32), r"must be finite numbers, but classifier\.bias has others"),
        (np.full(10, -np.inf, np.float32), r"must be finite numbers, but classifier\.bias has others"),
        (np.full(10, 1e300), r"must be numbers of 32 bits, but classifier\.bias has larger ones.*--dtype float64"),
    ],
)
def test_weights_that_are_no_numbers_are_refused(vit_folder, edit_tensors, value, match):
    folder = vit_folder()
    edit_tensors(folder, {"classifier.bias": value})
    with pytest.raises(InputError, match=match):
        import_weights(folder)


def test_a_number_of_heads_against_the_config_is_refused(vit_folder):
    folder = vit_folder()
    with pytest.raises(InputError, match=r"must be that of config\.json, which is 2, got 4"):
        import_weights(folder, num_heads=4)


def test_the_pooler_is_left_out_and_named(vit_folder, edit_tensors):
    folder = vit_folder()
    edit_tensors(folder, {"vit.pooler.dense.weight": np.zeros((8, 8), np.float32)})
    assert import_weights(folder).notes == ("vit.pooler.dense.weight is of no use to a classifier and was left out.",)


@pytest.mark.parametrize("names", [("weight", "bias"), ("features.0.weight",), ("vit.embeddings.cls_token",)])
def test_another_architecture_is_refused_with_those_that_are_known(tmp_path, names):
    from safetensors.numpy import save_file

    save_file({name: np.zeros(3, np.float32) for name in names}, tmp_path / "model.safetensors")
    match = rf"must be a ViT \(timm or Hugging Face\) or a CvT \(Hugging Face\), got tensors such as .*{min(names)}"
    with pytest.raises(InputError, match=match):
        import_weights(tmp_path)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model_type": None}, "needs its config.json"),
        ({"embed_dim": None}, r"`embed_dim` of config.json must have one value a stage, finite and < 2\^31, got None"),
        ({"embed_dim": []}, "`embed_dim` of config.json must have one value a stage"),
        ({"num_heads": [1, 2, 3]}, "`num_heads` of config.json must have one value a stage"),
        ({"num_heads": [1, "2"]}, "`num_heads` of config.json must have one value a stage"),
        ({"depth": 2}, "`depth` of config.json must have one value a stage"),
        ({"mlp_ratio": None}, "`mlp_ratio` of config.json must have one value a stage"),
        ({"qkv_bias": None}, "`qkv_bias` of config.json must have one value a stage"),
        ({"qkv_bias": [True, False]}, r"`qkv_bias` of config.json must be \[False\] before the last stage"),
        ({"cls_token": [True, True]}, r"`cls_token` of config.json must be \[False\] before the last stage"),
        ({"stride_q": [2, 2]}, r"`stride_q` of config.json must be \[1, 1\], so that a query stays"),
        ({"padding_q": [0, 0]}, r"`padding_q` of config.json must be \[1, 1\], so that a query stays"),
        ({"qkv_projection_method": ["avg", "avg"]}, "`qkv_projection_method` of config.json must be"),
        ({"depth": [1, 3]}, r"`depth` of config.json must be that of the tensors, which is \[1, 2\]"),
        ({"embed_dim": [4, 10**9]}, r"`embed_dim` of config.json must be that of the tensors, which is \[4, 8\]"),
        ({"mlp_ratio": [2.0, 2.5]}, r"instead of \[20\].* and 2 more"),
        ({"mlp_ratio": [2.0, 1e8]}, r"instead of .* and 2 more"),
        ({"mlp_ratio": [2.0, 1e12]}, r"`mlp_ratio` of config.json must have one value a stage, finite and < 2\^31"),
        ({"mlp_ratio": [2.0, float("nan")]}, r"`mlp_ratio` of config.json must have one value a stage, finite"),
        ({"kernel_qkv": [10**9 + 1, 3], "padding_q": [5 * 10**8, 1]}, "Choose a smaller kernel"),
        ({"cls_token": [False, False]}, "has the unknown cvt.encoder.stages.1.cls_token"),
    ],
)
def test_a_config_that_makes_no_cvt_is_refused(cvt_folder, edit_json, changes, match):
    folder = cvt_folder()
    edit_json(folder / "config.json", changes)
    with pytest.raises(InputError, match=match):
        import_weights(folder, image_size=(8, 12))


def test_a_cvt_without_a_classifier_is_refused(cvt_folder, edit_tensors):
    folder = cvt_folder()
    edit_tensors(folder, {"classifier.weight": None})
    with pytest.raises(InputError, match=r"must have the tensor classifier\.weight"):
        import_weights(folder, image_size=(8, 12))
