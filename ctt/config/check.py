"""Every field by itself: its range, and what other fields leave of it."""

import math

from ctt.config.dataset import find_facts
from ctt.config.requirement import at_least, require
from ctt.config.schema import Config, ModelConfig
from ctt.config.stage import split_stages
from ctt.config.stage_check import check_stages

_MAX_COLOR_SIDE = 2048  # The sum of an image's values must fit into 32 bits.


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
    _check_devices(config)
    _check_micro_batches(config)
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
    is_large = side > _MAX_COLOR_SIDE
    for field in ("randaugment", "color_jitter"):
        wanted = f"be 0 for images with a side over {_MAX_COLOR_SIDE} pixels"
        require(not (is_large and getattr(given, field)), f"augmentation.{field}", wanted, getattr(given, field))
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
    _fraction("model.stochastic_depth", model.stochastic_depth)
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
    for field in ("b1", "b2", "momentum", "warmup_fraction", "label_smoothing"):
        _fraction(f"optimizer.{field}", getattr(optimizer, field))
    for field in ("initial_fraction", "final_fraction"):
        _fraction(f"optimizer.{field}", getattr(optimizer, field), closed=True)
    for field in ("decay_fraction", "layer_decay"):
        value = getattr(optimizer, field)
        require(0 < value <= 1, f"optimizer.{field}", "be in (0, 1]", value)
    _positive("optimizer.clip_norm", optimizer.clip_norm)
    if optimizer.ema_decay is not None:
        _fraction("optimizer.ema_decay", optimizer.ema_decay)
    if optimizer.schedule == "wsd":
        rest = 1 - optimizer.warmup_fraction
        requirement = f"be <= {rest:g}, what `optimizer.warmup_fraction` = {optimizer.warmup_fraction:g} leaves"
        require(
            optimizer.decay_fraction <= rest + 1e-9, "optimizer.decay_fraction", requirement, optimizer.decay_fraction
        )
    if optimizer.name == "schedule_free":
        _check_schedule_free(config)


def _check_schedule_free(config: Config) -> None:
    optimizer, model = config.optimizer, config.model
    require(optimizer.b1 > 0, "optimizer.b1", "be > 0 with schedule_free, which divides by it", optimizer.b1)
    require(
        optimizer.schedule == "constant",
        "optimizer.schedule",
        "be constant with schedule_free, whose average takes the place of a descent",
        optimizer.schedule,
        remedy="Pass --optimizer.schedule constant.",
    )
    require(
        optimizer.ema_decay is None,
        "optimizer.ema_decay",
        "be None with schedule_free, whose weights are an average already",
        optimizer.ema_decay,
        remedy="Leave it out, or choose another optimizer.name.",
    )
    require(
        model.name != "cvt" or model.convolution_normalization != "batch",
        "model.convolution_normalization",
        "not be batch with schedule_free, whose running averages would be those of other weights than are measured",
        model.convolution_normalization,
        remedy="Pass --model.convolution-normalization layer, or choose another optimizer.name.",
    )


def _check_micro_batches(config: Config) -> None:
    training, model = config.training, config.model
    at_least("training.micro_batches", training.micro_batches, 1)
    require(
        training.batch_size % training.micro_batches == 0,
        "training.micro_batches",
        f"divide `training.batch_size` = {training.batch_size}",
        training.micro_batches,
    )
    require(
        training.micro_batches == 1 or model.name != "cvt" or model.convolution_normalization != "batch",
        "training.micro_batches",
        "be 1 with `model.convolution_normalization` batch, whose statistics are those of the whole batch",
        training.micro_batches,
        remedy="Leave it out, or pass --model.convolution-normalization layer.",
    )


def _check_training(config: Config) -> None:
    training = config.training
    _positive("training.epochs", training.epochs)
    for field in ("batch_size", "eval_batch_size", "log_every", "keep_checkpoints", "steps_per_dispatch"):
        at_least(f"training.{field}", getattr(training, field), 1)
    for field in ("steps", "eval_every", "checkpoint_every"):
        value = getattr(training, field)
        if value is not None:
            at_least(f"training.{field}", value, 1)


def _check_devices(config: Config) -> None:
    devices, batch_size = config.devices, config.training.batch_size
    at_least("devices.fsdp", devices.fsdp, 1)
    at_least("devices.timeout", devices.timeout, 1)
    for field, least in (("data", 1), ("num_processes", 1), ("process_id", 0)):
        value = getattr(devices, field)
        if value is not None:
            at_least(f"devices.{field}", value, least)
    shares = (devices.data or 1) * devices.fsdp
    name = "devices.data" if devices.data else "devices.fsdp"
    divides = f"be such that data times fsdp divides `training.batch_size` = {batch_size}"
    require(batch_size % shares == 0, name, divides, shares)
    given = [field for field in ("coordinator", "num_processes", "process_id") if getattr(devices, field) is not None]
    if given:
        together = "be given together with devices.coordinator, devices.num_processes and devices.process_id"
        require(len(given) == 3, f"devices.{given[0]}", together, getattr(devices, given[0]))
        on = "not be off where a coordinator is given"
        require(devices.distributed != "off", "devices.distributed", on, devices.distributed)
        host, _, port = (devices.coordinator or "").rpartition(":")
        is_address = bool(host) and port.isdecimal() and int(port) < 2**16
        require(is_address, "devices.coordinator", "be host:port", devices.coordinator)
        inside = f"be < devices.num_processes = {devices.num_processes}"
        require(
            (devices.process_id or 0) < (devices.num_processes or 0), "devices.process_id", inside, devices.process_id
        )


def _check_logging(config: Config) -> None:
    project = config.logging.wandb
    plain = project is None or (project.strip() == project != "" and not set(project) & set("/\\#?%:"))
    requirement = "be a project's name of Weights & Biases, without blanks at its ends or any of / \\ # ? % :"
    require(plain, "logging.wandb", requirement, project)
