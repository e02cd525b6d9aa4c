"""The footprint of a config: parameters, field evaluations and FLOPs against formulas by hand."""

import json
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from ctt.cli.main import main
from ctt.config import Config, DataConfig, GradientConfig, ModelConfig, SplittingConfig
from ctt.config.resolve import resolve_config
from ctt.models.build import build_model
from ctt.reports import count_flops, measure_footprint

TINY = {"patch_size": 4, "width": 8, "num_heads": 2, "feedforward_width": 12}


@pytest.fixture
def uncompiled(monkeypatch):
    """The compiler plans nothing, which only the bytes of temporaries notice."""
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self: SimpleNamespace(memory_analysis=lambda: None))


def _config(scheme="lie", substep="euler", steps=2, method="store", **model):
    return Config(
        model=ModelConfig(**{**TINY, **model}),
        splitting=SplittingConfig(scheme=scheme, substep=substep, steps=steps),
        gradient=GradientConfig(method=method),
    )


def _forward_flops(config, *, steps=None):
    """Count a ViT with lie and euler by hand: two FLOPs for a multiplication and an addition."""
    model, (height, width, channels) = config.model, resolve_config(config).data.image_shape
    tokens = height * width // model.patch_size**2 + (model.pooling == "cls")
    patches = height * width // model.patch_size**2
    lift = patches * model.patch_size**2 * channels * model.width
    attention = 4 * tokens * model.width**2 + 2 * tokens**2 * model.width
    feedforward = 2 * tokens * model.width * model.feedforward_width
    steps = config.splitting.steps if steps is None else steps
    return 2 * (lift + steps * (attention + feedforward) + model.width * 10)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("steps", [1, 3])
def test_forward_flops_are_those_of_a_vit_by_hand(uncompiled, steps, pooling):
    config = _config(steps=steps, pooling=pooling)
    assert measure_footprint(config)["forward_flops"] == _forward_flops(config)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_parameters_are_the_sum_of_the_shapes(uncompiled, pooling):
    config = _config(pooling=pooling)
    shapes = [leaf.shape for leaf in jax.tree.leaves(nnx.state(build_model(config), nnx.Param))]
    assert measure_footprint(config)["num_parameters"] == sum(math.prod(shape) for shape in shapes)


def test_parameters_of_the_parts_sum_to_all(uncompiled):
    footprint = measure_footprint(_config())
    assert sum(footprint["parameters"].values()) == footprint["num_parameters"]


def test_parameters_of_a_vit_are_those_by_hand(uncompiled):
    width, hidden, patch = TINY["width"], TINY["feedforward_width"], TINY["patch_size"] ** 2
    layer = 4 * (width**2 + width) + 2 * width * hidden + hidden + width + 2 * 2 * width
    rest = (patch + 1) * width + 4 * width + 2 * width + (width + 1) * 10
    assert measure_footprint(_config(steps=3))["num_parameters"] == 3 * layer + rest


@pytest.mark.parametrize(
    ("scheme", "substep", "evaluations"),
    [("lie", "euler", 2), ("lie", "midpoint", 4), ("strang", "euler", 3), ("strang", "midpoint", 6)],
)
def test_field_evaluations_are_letters_times_stages_times_steps(uncompiled, scheme, substep, evaluations):
    footprint = measure_footprint(_config(scheme, substep, steps=5))
    assert (footprint["field_evaluations_per_step"], footprint["field_evaluations"]) == (evaluations, 5 * evaluations)


@pytest.mark.parametrize("scheme", ["lie", "lie_reversed"])
def test_a_midpoint_doubles_the_flops_of_the_evolution(uncompiled, scheme):
    euler, midpoint = (
        measure_footprint(_config(scheme, name, steps=2))["forward_flops"] for name in ("euler", "midpoint")
    )
    ends = _forward_flops(_config(), steps=0)
    assert midpoint - ends == 2 * (euler - ends)


def test_remat_recomputes_each_step_once(uncompiled):
    # The recomputed step is the forward one, less the last products, whose result the gradient does not need.
    stored, rematerialised = (
        measure_footprint(_config(steps=4, method=name))["update_flops"] for name in ("store", "remat")
    )
    forward = 64 * (_forward_flops(_config(steps=4)) - _forward_flops(_config(), steps=0))
    assert 0.8 * forward <= rematerialised - stored <= forward


def test_a_scan_counts_as_often_as_it_runs():
    def run(u):
        return jax.lax.scan(lambda u, _: (u @ u, None), u, length=7)[0]

    assert count_flops(run, jnp.ones((3, 3))) == 7 * 2 * 3**3


def test_a_scan_in_a_scan_counts_the_product_of_both_lengths():
    def run(u):
        inner = lambda u: jax.lax.scan(lambda u, _: (u @ u, None), u, length=5)[0]  # noqa: E731
        return jax.lax.scan(lambda u, _: (inner(u), None), u, length=7)[0]

    assert count_flops(run, jnp.ones((3, 3))) == 35 * 2 * 3**3


def test_a_checkpointed_product_is_counted_again_in_the_gradient():
    def chain(u):
        return jnp.sum(jnp.sin(jnp.sin(u @ u) @ u))

    one = 2 * 3**3
    stored = count_flops(jax.grad(chain), jnp.ones((3, 3)))
    assert count_flops(jax.grad(jax.checkpoint(chain)), jnp.ones((3, 3))) - stored in (one, 2 * one)


def test_a_convolution_counts_its_kernel_at_every_output():
    images, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 5))

    def convolve(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert count_flops(convolve, images, kernel) == 2 * (2 * 8 * 8 * 5) * (3 * 3 * 3)


def test_the_same_footprint_is_printed_and_written(tmp_path, capsys):
    # The one test that compiles: bytes of temporaries come from XLA.
    config = tmp_path / "tiny.py"
    config.write_text(
        "from ctt.config import Config, ModelConfig, SplittingConfig\n\n"
        "def get_config():\n    return Config(model=ModelConfig(patch_size=4, width=8, num_heads=2), "
        "splitting=SplittingConfig(steps=1))\n"
    )
    assert main(["info", str(config), "--json", str(tmp_path / "info.json")]) == 0
    written, printed = json.loads((tmp_path / "info.json").read_text()), capsys.readouterr().out
    assert [key for key in written if key.replace("_", " ") not in printed and key != "parameters"] == []
    assert f"{written['num_parameters']:,}" in printed
    assert written["temporaries_bytes"] > 0


def test_a_cvt_is_counted_stage_by_stage():
    config = Config(data=DataConfig(name="cifar10"), model=ModelConfig(name="cvt", pooling="cls"))
    footprint = measure_footprint(config)
    assert footprint["tokens"] == [256, 64, 17]
    assert footprint["steps_of_stages"] == [1, 2, 4]
    assert footprint["field_evaluations"] == 14
    assert set(footprint["parameters"]) == {"stage 1", "stage 2", "stage 3", "normalization", "read_out"}
    assert sum(footprint["parameters"].values()) == footprint["num_parameters"]
