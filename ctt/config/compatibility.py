"""Combinations of fields: each refusal says why, and the way out.

Here is what names alone decide. What a scheme asks of its operators is in `ctt.splitting.compatibility`.
"""

from ctt.config.error import InputError
from ctt.config.name import SCHEMES
from ctt.config.schema import Config

_DISCRETE = (
    "the literal scheme is a recovery at step 1 only: with two constraint sets in one step it does not tend to the "
    "identity as the step goes to 0"
)


def check_combinations(config: Config) -> None:
    """Check that the fields of a resolved config go together.

    Args:
        config: a config in which no derived field is ``None``.

    Raises:
        InputError: a combination has no meaning.
    """
    _check_sets(config)
    _check_word(config)
    if config.splitting.scheme == "literal":
        _check_literal(config)
    elif config.model.feedforward_layers != 2:
        raise InputError(
            f"`model.feedforward_layers` must be 2 in the residual form, got {config.model.feedforward_layers}. "
            "Set it to 2, or choose --splitting.scheme literal, which takes any number."
        )
    if config.splitting.scheme == "strang_staggered":
        _check_staggered(config)
    assert config.splitting.horizon is not None  # The config is resolved.
    assert config.splitting.steps is not None
    if config.splitting.horizon < config.splitting.steps:
        check_refinable(config, "A step shorter than 1 (`splitting.horizon` < `splitting.steps`)")


def check_trainable(config: Config) -> None:
    """Check that a config can be trained, and not only measured and integrated otherwise.

    Args:
        config: a resolved config.

    Raises:
        InputError: a CvT with batch normalisation has another substep than Euler, merged ends, or tied weights.
    """
    if config.model.name != "cvt" or config.model.convolution_normalization != "batch":
        return
    splitting = config.splitting
    wanted = {
        "splitting.substep": (splitting.substep_text, {"euler", *("/".join(["euler"] * n) for n in range(1, 9))}),
        "gradient.method": (config.gradient.method, {"store", "remat"}),
        "splitting.scheme": (splitting.scheme, {*SCHEMES, "word"} - {"strang_staggered"}),
        "controls.knots": (config.controls.knots, {splitting.steps}),
    }
    for field, (received, values) in wanted.items():
        if received not in values:
            remedy = (
                "one knot a step" if field == "controls.knots" else "Euler substeps, store or remat, no merged ends"
            )
            raise InputError(
                f"`{field}` {received} cannot be trained with `model.convolution_normalization` batch: the statistics "
                f"of a batch make one field of all its images, which is trained as published ({remedy}). Pass "
                "--model.convolution-normalization layer, which trains with everything."
            )


def has_one_set(config: Config) -> bool:
    """Return whether all substeps project onto one and the same constraint set.

    Args:
        config: a resolved config.
    """
    affine = config.normalization.affine
    if len(config.model.operators) == 1:
        return affine != "elementwise"
    return affine == "none" or (affine == "scalar" and bool(config.normalization.shared))


def limit_problem(config: Config) -> str | None:
    """Return why a config has no limit as the step goes to 0, or None if it has one.

    Args:
        config: a resolved config.
    """
    if config.splitting.scheme == "literal":
        return _DISCRETE
    if config.normalization.placement != "post" or has_one_set(config):
        return None
    if config.normalization.affine == "elementwise":
        return (
            "the placement post with an elementwise affine map has no limit as the step goes to 0: the map is applied "
            "once a substep, however short"
        )
    return (
        "the placement post with a set an operator has a limit that depends on the scheme: the state jumps between "
        "the sets"
    )


def check_refinable(config: Config, purpose: str) -> None:
    """Check that a config has a limit as the step goes to 0.

    Args:
        config: a resolved config.
        purpose: what was asked for, such as "An order certificate".

    Raises:
        InputError: it has none, and `splitting.allow_reduced_order` is not set or cannot help.
    """
    problem = limit_problem(config)
    if problem is None:
        return
    if config.splitting.scheme == "literal":
        raise InputError(
            f"{purpose} is not to be had: {problem}. Choose --splitting.scheme lie, whose layers do the same in "
            "residual form."
        )
    if not config.splitting.allow_reduced_order:
        raise InputError(
            f"{purpose} is not to be had: {problem}. Choose --normalization.placement pre or tangent, or "
            "--normalization.affine none or (with --normalization.shared True) scalar, or set "
            "--splitting.allow-reduced-order to see what it does."
        )


def _check_sets(config: Config) -> None:
    norm = config.normalization
    is_staged = config.model.name == "cvt"
    field = "model.stages.widths" if is_staged else "model.width"
    width = min(config.model.stages.widths) if is_staged else config.model.width
    if norm.placement != "pre" and norm.constraint == "s1" and width < 2:
        raise InputError(
            f"`{field}` must be >= 2 with the placement {norm.placement} on the set s1, got {width}: "
            f"one feature has no variance. Set it in the config file or pass --{field}."
        )
    if norm.placement == "tangent" and norm.affine == "elementwise":
        raise InputError(
            "`normalization.affine` must be none or scalar with the placement tangent, got 'elementwise': a scale a "
            "feature maps the state off the set whose tangent is meant. Pass --normalization.affine scalar."
        )
    if norm.placement == "tangent" and not norm.shared:
        raise InputError(
            "`normalization.shared` must be True with the placement tangent, got False: the state has one moving "
            "frame. Leave it out, or choose another placement."
        )
    if norm.placement == "post" and config.splitting.scheme == "swss" and not has_one_set(config):
        raise InputError(
            "`splitting.scheme` swss with the placement post needs one constraint set, to which the mean of its two "
            f"words is brought back, got affine {norm.affine!r}. Pass --normalization.affine none, or scalar with "
            "--normalization.shared True."
        )


def _check_word(config: Config) -> None:
    splitting = config.splitting
    if (splitting.scheme == "word") != (splitting.word is not None):
        given = repr(splitting.word)
        raise InputError(
            f"`splitting.word` must be given with `splitting.scheme` word and with no other, got {given} with "
            f"{splitting.scheme!r}. Pass both, as in --splitting.scheme word --splitting.word 'attention/2 feedforward "
            "attention/2'."
        )
    count, num_operators = len(splitting.operator_substeps), len(config.model.operators)
    if count not in (0, num_operators):
        raise InputError(
            f"`splitting.operator_substeps` must be empty or name one substep for each of the {num_operators} "
            f"operators, got {count}. Set it in the config file or pass --splitting.operator-substeps."
        )


def _check_staggered(config: Config) -> None:
    if len(config.model.operators) == 1:
        return
    if config.controls.knots != config.splitting.steps:
        raise InputError(
            f"`controls.knots` must be `splitting.steps` = {config.splitting.steps} with the scheme strang_staggered, "
            f"got {config.controls.knots}: its outer operator has a control a node and its inner one a control a step. "
            "Leave the knots out, or choose --splitting.scheme strang."
        )
    if config.normalization.affine != "none" and config.normalization.shared:
        raise InputError(
            f"`normalization.affine` {config.normalization.affine} cannot be shared with the scheme strang_staggered, "
            "whose operators have controls at different times. Pass --normalization.affine none, or choose "
            "--splitting.scheme strang."
        )


def _check_literal(config: Config) -> None:
    model, splitting = config.model, config.splitting
    if config.training.log_splitting_error:
        raise InputError(
            "`training.log_splitting_error` must be False with the scheme literal, which splits nothing. Leave it out, "
            "or choose --splitting.scheme lie."
        )
    wanted = {
        "model.name": (model.name, "vit"),
        "model.operators": (model.operators, ("attention", "feedforward")),
        "model.score_scale": (model.score_scale, "head"),
        "model.activation": (model.activation, "relu"),
        "model.feedforward_width": (model.feedforward_width, model.width),
        "model.dropout": (model.dropout, 0.0),
        "model.stochastic_depth": (model.stochastic_depth, 0.0),
        "normalization.placement": (config.normalization.placement, "post"),
        "normalization.constraint": (config.normalization.constraint, "s1"),
        "normalization.shared": (config.normalization.shared, False),
        "splitting.substep": (splitting.substep, "euler"),
        "splitting.operator_substeps": (splitting.operator_substeps, ()),
        "splitting.horizon": (splitting.horizon, float(splitting.steps or 0)),
    }
    for field, (received, value) in wanted.items():
        if received != value:
            why = f" ({_DISCRETE})" if field == "splitting.horizon" else ""
            raise InputError(
                f"`{field}` must be {value!r} with the scheme literal, got {received!r}{why}. Set it in the config "
                f"file or pass --{field}, or choose --splitting.scheme lie."
            )
