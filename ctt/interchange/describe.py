"""The `config.json` and `preprocessor_config.json` of other libraries, from a config."""

import math
from collections.abc import Sequence
from typing import Any

from ctt.config.schema import Config

TIMM_EPS = 1e-6
"""What the layers of timm's ViT add to the variance of a token."""


def describe_huggingface(config: Config, class_names: Sequence[str]) -> dict[str, Any]:
    """Return the `config.json` of transformers.

    Args:
        config: a resolved config.
        class_names: a name a class.
    """
    model, (height, width, channels) = config.model, config.data.image_shape or (0, 0, 0)
    names = list(class_names) or [str(n) for n in range(config.data.num_classes or 0)]
    common = {
        "id2label": {str(n): name for n, name in enumerate(names)},
        "label2id": {name: n for n, name in enumerate(names)},
        "num_channels": channels,
        "layer_norm_eps": config.normalization.eps,
        "dtype": "float64" if model.dtype == "float64" else "float32",
    }
    has_bias = "query" in model.attention_biases
    if model.name == "vit":
        return {
            "architectures": ["ViTForImageClassification"],
            "model_type": "vit",
            "hidden_size": model.width,
            "num_hidden_layers": config.splitting.steps,
            "num_attention_heads": model.num_heads,
            "intermediate_size": model.feedforward_width,
            "hidden_act": "gelu_pytorch_tanh" if model.activation == "gelu_tanh" else model.activation,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "image_size": height if height == width else [height, width],
            "patch_size": model.patch_size,
            "qkv_bias": has_bias,
            **common,
        }
    stages, count = model.stages, len(model.stages.widths)
    return {
        "architectures": ["CvtForImageClassification"],
        "model_type": "cvt",
        "embed_dim": list(stages.widths),
        "num_heads": list(stages.num_heads),
        "depth": list(stages.steps),
        "mlp_ratio": [_ratio(*sizes) for sizes in zip(stages.feedforward_widths, stages.widths, strict=True)],
        "patch_sizes": list(stages.kernels),
        "patch_stride": list(stages.strides),
        "patch_padding": list(stages.paddings),
        "kernel_qkv": list(stages.projection_kernels),
        "padding_q": [side // 2 for side in stages.projection_kernels],
        "stride_q": [1] * count,
        "padding_kv": list(stages.key_value_paddings),
        "stride_kv": list(stages.key_value_strides),
        "qkv_projection_method": ["dw_bn"] * count,
        "qkv_bias": [has_bias] * count,
        "cls_token": [False] * (count - 1) + [model.pooling == "cls"],
        **{f"{name}_rate": [0.0] * count for name in ("drop", "attention_drop", "drop_path")},
        **common,
    }


def describe_timm(config: Config, class_names: Sequence[str]) -> dict[str, Any]:
    """Return a `config.json` that `timm.create_model("local-dir:FOLDER", pretrained=True)` reads.

    Args:
        config: a resolved config.
        class_names: a name a class.
    """
    model, (height, width, channels) = config.model, config.data.image_shape or (0, 0, 0)
    return {
        # One of many entry points of the same class; the arguments below say all that it is.
        "architecture": "vit_base_patch16_224",
        "num_classes": config.data.num_classes,
        "num_features": model.width,
        "global_pool": "token" if model.pooling == "cls" else "avg",
        "num_attention_heads": model.num_heads,
        "layer_norm_eps": config.normalization.eps,
        "model_args": {
            "img_size": [height, width],
            "patch_size": model.patch_size,
            "in_chans": channels,
            "embed_dim": model.width,
            "depth": config.splitting.steps,
            "num_heads": model.num_heads,
            "mlp_ratio": _ratio(model.feedforward_width, model.width),
            "qkv_bias": "query" in model.attention_biases,
            "class_token": model.pooling == "cls",
            "global_pool": "token" if model.pooling == "cls" else "avg",
            "fc_norm": False,
            **({} if model.activation == "gelu" else {"act_layer": model.activation}),
        },
        "pretrained_cfg": {
            "input_size": [channels, height, width],
            "mean": list(config.data.mean or ()),
            "std": list(config.data.std or ()),
            "num_classes": config.data.num_classes,
            "fixed_input_size": True,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
        **({"label_names": list(class_names)} if class_names else {}),
    }


def describe_preprocessor(config: Config) -> dict[str, Any]:
    """Return the `preprocessor_config.json` that makes what the model sees of an image.

    Args:
        config: a resolved config.
    """
    height, width, _ = config.data.image_shape or (0, 0, 0)
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(config.data.mean or ()),
        "image_std": list(config.data.std or ()),
    }


def _ratio(hidden: int, width: int) -> float:
    """Return the float that both libraries turn into the hidden width, ``int(width * ratio)``."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else math.nextafter(ratio, math.inf)
