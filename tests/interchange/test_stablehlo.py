"""One file that jax runs where there is no `ctt`."""

import json
import subprocess
import sys

import numpy as np
import pytest

from ctt.config import InputError
from ctt.interchange import export_stablehlo

RUN_ALONE = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ctt", "flax"):
            raise ImportError(name)

sys.meta_path.insert(0, Block())
import pathlib
import jax
import jax.export
import numpy as np

try:
    import ctt
except ImportError:
    pass
else:
    raise SystemExit("ctt is there")
function = jax.export.deserialize(pathlib.Path(sys.argv[1]).read_bytes())
images = np.load(sys.argv[2])
with jax.default_matmul_precision("highest"):
    parts = [np.asarray(function.call(images[:1])), np.asarray(function.call(images[1:]))]
np.save(sys.argv[3], np.concatenate(parts))
print(function.platforms)
"""


@pytest.mark.parametrize("kind", ["vit", "cvt", "strang"])
def test_the_file_alone_gives_the_same_logits(build_vit, build_cvt, call_jitted, tmp_path, kind):
    strang = {"splitting.scheme": "strang", "splitting.substep": "midpoint", "model.operators": OPERATORS}
    config, model = build_cvt() if kind == "cvt" else build_vit(strang if kind == "strang" else {})
    if kind == "cvt":
        make_variances_positive(model)
    path = export_stablehlo(config, model, tmp_path / "model.jax_export", class_names=["a"] * config.data.num_classes)
    images = np.random.default_rng(0).integers(0, 256, (4, *config.data.image_shape)).astype(np.uint8)
    np.save(tmp_path / "images.npy", images)
    words = [sys.executable, "-c", RUN_ALONE, path, tmp_path / "images.npy", tmp_path / "logits.npy"]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "('cpu', 'cuda', 'tpu')"
    received = np.load(tmp_path / "logits.npy")
    expected = np.asarray(call_jitted(lambda m, x: m(x), model, images))
    assert np.abs(expected - expected[:1]).max() > 1e-3  # The logits depend on the image.
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5)


OPERATORS = ("attention", "feedforward", "heat", "skew")


def make_variances_positive(model):
    from flax import nnx

    for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.BatchStat)):
        if path[-1] == "var":
            leaf[...] = abs(leaf[...]) + 0.5
            nnx.update(model, nnx.from_flat_state([(path, leaf)]))


def test_what_lies_beside_says_what_goes_in_and_out(build_vit, tmp_path):
    names = list("abcdefghij")
    path = export_stablehlo(*build_vit(), tmp_path / "new" / "model", class_names=names)
    described = json.loads((tmp_path / "new" / "model.json").read_text())
    assert described["input"] == {"shape": ["batch", 8, 8, 1], "dtype": "uint8", "range": [0, 255]}
    assert described["output"] == {"shape": ["batch", 10], "dtype": "float32", "what": "logits"}
    assert described["class_names"] == names
    assert {file.name for file in path.parent.iterdir()} == {"model", "model.json"}


@pytest.mark.parametrize("taken", ["model", "model.json"])
@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_nothing_is_overwritten(build_vit, tmp_path, taken, kind):
    if kind == "file":
        (tmp_path / taken).write_text("mine")
    elif kind == "folder":
        (tmp_path / taken).mkdir()
    else:
        (tmp_path / taken).symlink_to(tmp_path / "nothing")
    with pytest.raises(InputError, match=f"{taken}` exists already. Choose another --out"):
        export_stablehlo(*build_vit(), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == [taken]


@pytest.mark.parametrize("path", ["file/model", "/"])
def test_a_path_that_cannot_be_written_is_refused(build_vit, tmp_path, path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="Choose another --out"):
        export_stablehlo(*build_vit(), tmp_path / path)


def test_the_package_that_is_needed_is_named(build_vit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(InputError, match="pip install flatbuffers"):
        export_stablehlo(*build_vit(), tmp_path / "model")


def test_a_model_that_cannot_be_lowered_is_refused(build_vit, tmp_path):
    config, model = build_vit()
    operator = model.evolution.controls.operators["feedforward"].operator
    original = type(operator).vector_field

    def ask_the_host(self, t, u):
        import jax

        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(u.shape, u.dtype), original(self, t, u))

    type(operator).vector_field = ask_the_host
    try:
        with pytest.raises(InputError, match="must be lowered for cpu, cuda, tpu"):
            export_stablehlo(config, model, tmp_path / "model")
    finally:
        type(operator).vector_field = original
    assert list(tmp_path.iterdir()) == []
