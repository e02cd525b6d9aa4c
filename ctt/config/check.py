"""Every field by itself: its range, and what other fields leave of it."""

import math

from ctt.config.dataset import find_facts
from ctt.config.requirement import at_least, require
from ctt.config.schema import Config, ModelConfig
from ctt.config.stage import split_stages
from ctt.config.stage_check import check_stages


def check_fields(config: Config) -> None:
    """Check every field of a resolved config.

    Args:
        config: a config in which no derived field is ``None``.

    Raises:
        InputError: a field cannot be used.
    """
    _check_top(config)
    _check_data(config)
    _check_augmentation(config)
    _check_model(config)
    _check_time(config)
    _check_optimizer(config)
    _check_training(config)
    _check_logging(config)


def _positive(field: str, value: float | None) -> None:
    if value is not None:
        require(value > 0 and math.isfinite(value), field, "be > 0 and finite", value)


def _fraction(field: str, value: float, *, closed: bool = False) -> None:
    inside = 0 <= value <= 1 if closed else 0 <= value < 1
    require(inside, field, f"be in [0, 1{']' if closed else ')'}", value)


def _check_top(config: Config) -> None:
    require(0 <= config.seed < 2**32, "seed", "be in [0, 2^32)", config.seed)
    name = config.name or ""
    require(
        bool(name) and not name.startswith(".") and "/" not in name and "\\" not in name,
        "name",
        "be a plain folder name",
        config.name,
    )


def _check_data(config: Config) -> None:
    data = config.data
    height, width, channels = data.image_shape or (0, 0, 0)
    sides = "have sides >= 1 and < 2^31"
    require(min(height, width) >= 1 and max(height, width) < 2**31, "data.image_shape", sides, data.image_shape)
    require(channels in (1, 3), "data.image_shape", "have 1 or 3 channels", data.image_shape)
    at_least("data.num_classes", data.num_classes or 0, 2)
    if data.val_size is not None:
        at_least("data.val_size", data.val_size, 1)
    require(0 <= data.split_seed < 2**32, "data.split_seed", "be in [0, 2^32)", data.split_seed)
    for field, values in (("data.mean", data.mean), ("data.std", data.std)):
        require(len(values or ()) == channels, field, f"have one value a channel ({channels})", values)
        require(all(math.isfinite(v) for v in values or ()), field, "be finite", values)
    require(all(s > 0 for s in data.std or ()), "data.std", "be > 0", data.std)
    facts = find_facts(data.name)
    if facts is not None:
        requirement = f"be {facts.num_classes}, the number of classes of {data.name}"
        require(data.num_classes == facts.num_classes, "data.num_classes", requirement, data.num_classes)


def _check_augmentation(config: Config) -> None:
    given, side = config.augmentation, max((config.data.image_shape or (0, 0))[:2])
    for field in ("crop_padding", "randaugment", "randaugment_magnitude", "randaugment_magnitude_std"):
        at_least(f"augmentation.{field}", getattr(given, field), 0)
    for field in ("color_jitter", "mixup", "cutmix"):
        at_least(f"augmentation.{field}", getattr(given, field), 0)
    padding = given.crop_padding
    require(padding <= side, "augmentation.crop_padding", f"be <= {side}, the image's side", padding)
    magnitude = given.randaugment_magnitude
    require(magnitude <= 10, "augmentation.randaugment_magnitude", "be <= 10", magnitude)
    for field in ("erasing", "mix_probability", "cutmix_share"):
        _fraction(f"augmentation.{field}", getattr(given, field), closed=True)


def _check_model(config: Config) -> None:
    model = config.model
    at_least("model.feedforward_layers", model.feedforward_layers, 1)
    if model.name == "cvt":
        check_stages(config)
    else:
        _check_one_stage(config)
    biases = model.attention_biases
    require(len(set(biases)) == len(biases), "model.attention_biases", "name each projection once", biases)
    _fraction("model.dropout", model.dropout)
    _positive("model.heat_diffusivity", model.heat_diffusivity)
    operators = model.operators
    require(len(operators) >= 1, "model.operators", "name at least one operator", operators)
    require(len(set(operators)) == len(operators), "model.operators", "name each operator once", operators)
    at_least("normalization.eps", config.normalization.eps, 0)


def _check_one_stage(config: Config) -> None:
    model = config.model
    for field in ("patch_size", "width", "num_heads", "feedforward_width"):
        at_least(f"model.{field}", getattr(model, field), 1)
    height, width, _ = config.data.image_shape or (0, 0, 0)
    require(
        height % model.patch_size == 0 and width % model.patch_size == 0,
        "model.patch_size",
        f"divide the image's height {height} and width {width}",
        model.patch_size,
    )
    require(
        model.width % model.num_heads == 0,
        "model.num_heads",
        f"divide `model.width` = {model.width}",
        model.num_heads,
    )
    if model.position == "sincos":
        require(model.width % 4 == 0, "model.width", "be a multiple of 4 with `sincos` positions", model.width)
    for field in ("stages", "convolution_normalization"):
        received, default = getattr(model, field), getattr(ModelConfig(), field)
        remedy = "Leave it out, or pass --model.name cvt."
        require(received == default, f"model.{field}", "be left alone with the model vit", received, remedy=remedy)


def _check_time(config: Config) -> None:
    splitting, knots = config.splitting, config.controls.knots or 0
    assert splitting.steps is not None
    at_least("splitting.steps", splitting.steps, 1)
    _positive("splitting.horizon", splitting.horizon)
    at_least("controls.knots", knots, 1)
    if not (config.model.name == "cvt" and knots == 1):  # One knot in every stage.
        require(splitting.steps % knots == 0, "controls.knots", f"divide `splitting.steps` = {splitting.steps}", knots)
    split_stages(config)  # Refuses what the stages cannot share.


def _check_optimizer(config: Config) -> None:
    optimizer = config.optimizer
    _positive("optimizer.learning_rate", optimizer.learning_rate)
    at_least("optimizer.weight_decay", optimizer.weight_decay, 0)
    _fraction("optimizer.b1", optimizer.b1)
    _fraction("optimizer.b2", optimizer.b2)
    _fraction("optimizer.warmup_fraction", optimizer.warmup_fraction)
    _fraction("optimizer.final_fraction", optimizer.final_fraction, closed=True)
    _positive("optimizer.clip_norm", optimizer.clip_norm)
    _fraction("optimizer.label_smoothing", optimizer.label_smoothing)


def _check_training(config: Config) -> None:
    training = config.training
    _positive("training.epochs", training.epochs)
    for field in ("batch_size", "eval_batch_size", "log_every", "keep_checkpoints"):
        at_least(f"training.{field}", getattr(training, field), 1)
    for field in ("steps", "eval_every", "checkpoint_every"):
        value = getattr(training, field)
        if value is not None:
            at_least(f"training.{field}", value, 1)


def _check_logging(config: Config) -> None:
    project = config.logging.wandb
    plain = project is None or (project.strip() == project != "" and not set(project) & set("/\\#?%:"))
    requirement = "be a project's name of Weights & Biases, without blanks at its ends or any of / \\ # ? % :"
    require(plain, "logging.wandb", requirement, project)
