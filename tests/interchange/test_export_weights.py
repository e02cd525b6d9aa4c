"""To the files of other libraries: what is no plain stack is refused by its field, and nothing is overwritten."""

import json

import numpy as np
import pytest

from ctt.config import InputError, StagesConfig
from ctt.interchange import check_plain_stack, export_notes, export_weights
from ctt.interchange.describe import _ratio

OTHERWISE = {
    "scheme": ({"splitting.scheme": "strang"}, "`splitting.scheme` is 'strang', and must be 'lie'"),
    "substep": ({"splitting.substep": "midpoint"}, "`splitting.substep` is 'midpoint', and must be 'euler'"),
    "substeps": (
        {"splitting.operator_substeps": ("euler", "midpoint")},
        r"`splitting.operator_substeps` is \('euler', 'midpoint'\)",
    ),
    "horizon": ({"splitting.horizon": 1.5}, "`splitting.horizon` is 1.5, and must be 3.0"),
    "knots": ({"controls.knots": 1}, "`controls.knots` is 1, and must be 3"),
    "placement": ({"normalization.placement": "post"}, "`normalization.placement` is 'post', and must be 'pre'"),
    "affine": ({"normalization.affine": "none"}, "`normalization.affine` is 'none'"),
    "constraint": ({"normalization.constraint": "sphere"}, "`normalization.constraint` is 'sphere'"),
    "shared": ({"normalization.shared": True}, "`normalization.shared` is True"),
    "operators": ({"model.operators": ("attention", "feedforward", "heat")}, "`model.operators` is"),
    "order": ({"model.operators": ("feedforward", "attention")}, "`model.operators` is"),
    "causal": ({"model.causal": True}, "`model.causal` is True"),
    "feedforward bias": ({"model.feedforward_bias": False}, "`model.feedforward_bias` is False"),
    "attention biases": ({"model.attention_biases": ("query", "output")}, "`model.attention_biases` is"),
    "no output bias": ({"model.attention_biases": ("query", "key", "value")}, "`model.attention_biases` is"),
    "positions": ({"model.position": "sincos"}, "`model.position` is 'sincos', and must be 'learned'"),
    "score scale": ({"model.score_scale": "width"}, "`model.score_scale` is 'width', and must be 'head'"),
}
CVT_OTHERWISE = {
    "batch": ({"model.convolution_normalization": "layer"}, "`model.convolution_normalization` is 'layer'"),
    "score scale": ({"model.score_scale": "head"}, "`model.score_scale` is 'head', and must be 'width'"),
    "eps": ({"normalization.eps": 1e-6}, "`normalization.eps` is 1e-06, and must be 1e-05"),
    "steps": ({"splitting.steps": 6}, "`splitting.steps` is 6, and must be 3"),
    "mean": ({"model.pooling": "mean"}, "`model.pooling` must be cls for --format huggingface, whose cvt"),
    "activation": ({"model.activation": "relu"}, "`model.activation` must be gelu for --format huggingface"),
    "shallow": (
        {"model.stages": StagesConfig(steps=(1, 1, 1))},
        r"`model.stages.steps` must be at least 1, 2, 3.*got \(1, 1, 1\)",
    ),
}


@pytest.mark.parametrize(("overrides", "match"), OTHERWISE.values(), ids=OTHERWISE.keys())
def test_what_is_no_plain_stack_is_refused_by_its_field(build_vit, tmp_path, overrides, match):
    config, model = build_vit(overrides)
    with pytest.raises(InputError, match=rf"{match}.*stablehlo"):
        export_weights(config, model, "huggingface", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("overrides", "match"), CVT_OTHERWISE.values(), ids=CVT_OTHERWISE.keys())
def test_what_is_no_published_cvt_is_refused_by_its_field(build_cvt, tmp_path, overrides, match):
    config, model = build_cvt({"data.image_shape": (16, 16, 3), **overrides})
    with pytest.raises(InputError, match=rf"{match}.*stablehlo"):
        export_weights(config, model, "huggingface", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overrides", [{}, {"model.dropout": 0.1}, {"splitting.operator_substeps": ("euler", "euler")}])
def test_a_plain_stack_is_one(build_vit, overrides):
    check_plain_stack(build_vit(overrides)[0])


def test_formats_that_do_not_know_a_model_are_refused(build_vit, build_cvt, tmp_path):
    with pytest.raises(InputError, match="knows the model vit alone"):
        export_weights(*build_cvt(), "timm", tmp_path / "out")
    with pytest.raises(InputError, match=r"`model.pooling` must be cls .*stablehlo, or timm"):
        export_weights(*build_vit({"model.pooling": "mean"}), "huggingface", tmp_path / "out")
    with pytest.raises(InputError, match=r"`normalization.eps` must be at most 1e-06 for --format timm"):
        export_weights(*build_vit({"normalization.eps": 1e-5}), "timm", tmp_path / "out")


def test_what_timm_computes_otherwise_is_said(build_vit):
    assert export_notes(build_vit()[0], "timm") == []
    other = build_vit({"normalization.eps": 1e-12})[0]
    assert "timm adds 1e-06" in export_notes(other, "timm")[0]
    assert export_notes(other, "huggingface") == []


@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling link"])
def test_nothing_is_overwritten(build_vit, tmp_path, kind):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "folder":
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    elif kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to(elsewhere if kind == "link" else tmp_path / "nothing")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"is not an empty folder. Choose another --out"):
        export_weights(*build_vit(), "huggingface", out)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_is_filled(build_vit, tmp_path):
    (tmp_path / "out").mkdir()
    folder = export_weights(*build_vit(), "huggingface", tmp_path / "out")
    names = {"model.safetensors", "config.json", "preprocessor_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_a_folder_below_a_file_cannot_be_made(build_vit, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="cannot be made"):
        export_weights(*build_vit(), "huggingface", tmp_path / "file" / "out")


def test_a_write_that_fails_leaves_nothing(build_vit, tmp_path, monkeypatch):
    import safetensors.numpy

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", fail)
    with pytest.raises(InputError, match=r"cannot be written .No space left on device"):
        export_weights(*build_vit(), "huggingface", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_class_names_of_the_same_text_keep_their_numbers(build_vit, tmp_path):
    folder = export_weights(*build_vit(), "huggingface", tmp_path / "out", class_names=["crane"] * 10)
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {str(n): "crane" for n in range(10)}


def test_a_ratio_gives_back_the_hidden_width():
    widths = np.random.default_rng(0).integers(1, 2000, (20000, 2)).tolist()
    assert [pair for pair in widths if int(pair[1] * _ratio(*pair)) != pair[0]] == []
    assert int(7 * (61 / 7)) != 61  # That is why.
