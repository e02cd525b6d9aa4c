import jax
import pytest
from flax import nnx

from ctt.config import PRESETS, InputError, load_config, preset, resolve_config
from ctt.models import build_model, count_parameters

# Millions of parameters as published: DeiT table 1, Compact-Transformers' README, CvT table 2.
PUBLISHED = {
    "vit_tiny": 5.72,
    "vit_small": 22.05,
    "vit_base": 86.57,
    "vit_lite_6_4": 3.19,
    "vit_lite_7_4": 3.72,
    "cvt_13": 19.98,
    "cvt_21": 31.62,
    "cvt_w24": 277.0,
    "cvt_cifar": 3.7,
}


def test_every_preset_is_known():
    assert PUBLISHED.keys() == PRESETS.keys()


@pytest.mark.parametrize(("name", "millions"), PUBLISHED.items())
def test_a_preset_has_the_published_number_of_parameters(name, millions):
    model = nnx.eval_shape(lambda: build_model(preset(name)))
    assert count_parameters(model) == pytest.approx(1e6 * millions, rel=0.01)
    logits = jax.eval_shape(lambda m, x: m(x), model, jax.ShapeDtypeStruct((1, *model.image_shape), "uint8"))
    assert logits.shape == (1, resolve_config(preset(name)).data.num_classes)


def test_a_name_will_do_for_a_file():
    config = load_config("cvt_13", ["--splitting.steps", "26"])
    assert (config.name, config.splitting.steps) == ("cvt_13", 26)


def test_a_wrong_name_is_told_the_nearest():
    with pytest.raises(InputError, match="Did you mean `vit_base`"):
        load_config("vit_bas")
