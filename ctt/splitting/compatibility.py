"""What a scheme asks of its operators: each refusal says why, and the way out."""

from collections.abc import Sequence

from ctt.config.error import InputError
from ctt.dynamics.operator import Operator, Projection, find_flow, is_bolted_on, is_reversible
from ctt.splitting.scheme import Letter, Scheme
from ctt.splitting.substep import Substep


def check_operators(
    scheme: Scheme,
    substeps: Sequence[Substep],
    operators: Sequence[Operator | Projection],
    *,
    names: Sequence[str] | None = None,
    allow_reduced_order: bool = False,
) -> None:
    """Check that a scheme and its substeps go together with the operators.

    Args:
        scheme: the words.
        substeps: the method for each operator.
        operators: the operators.
        names: what messages call the operators; None: by number.
        allow_reduced_order: let a combination run whose order is lower than the scheme's; impossible ones are
            refused all the same.

    Raises:
        InputError: `exact` without a flow, a letter of several operators with different substeps or with
            `exact`, a negative fraction of an operator that cannot flow backwards, or one followed by a
            projection.
    """
    labels = tuple(names) if names is not None else tuple(f"operator {i}" for i in range(len(operators)))
    for operator, method, label in zip(operators, substeps, labels, strict=True):
        if method.is_exact and isinstance(operator, Operator) and find_flow(operator) is None:
            raise InputError(
                f"The substep `exact` needs an operator with a flow of its own, {label} has none (as it is placed). "
                "Choose another substep for it, such as midpoint or rk4."
            )
    letters = [letter for _, word in scheme.words for letter in word.letters]
    for letter in letters:
        _check_set(scheme, letter, substeps, operators, labels)
    for letter in letters:
        if letter.fraction < 0:
            _check_backwards(scheme, letter, operators, labels, allow_reduced_order)


def _check_set(
    scheme: Scheme,
    letter: Letter,
    substeps: Sequence[Substep],
    operators: Sequence[Operator | Projection],
    labels: tuple[str, ...],
) -> None:
    fields = [i for i in sorted(letter.operators) if isinstance(operators[i], Operator)]
    methods = {substeps[i].name for i in fields}
    together = " and ".join(labels[i] for i in fields)
    if len(methods) > 1:
        raise InputError(
            f"In `{scheme.name}` {together} flow together, so they must have the same substep, got "
            f"{', '.join(sorted(methods))}. Give them one, or choose a scheme that splits them."
        )
    if len(fields) > 1 and "exact" in methods:
        raise InputError(
            f"In `{scheme.name}` {together} flow together, and the flow of a sum is not known. Choose another "
            "substep than exact, or a scheme that splits them."
        )


def _check_backwards(
    scheme: Scheme,
    letter: Letter,
    operators: Sequence[Operator | Projection],
    labels: tuple[str, ...],
    allow_reduced_order: bool,
) -> None:
    for index in sorted(letter.operators):
        if not is_reversible(operators[index]):
            raise InputError(
                f"`{scheme.name}` flows backwards over a part of its step, which {labels[index]} cannot: backwards in "
                "time its equation is ill posed. Choose a scheme without negative fractions, such as strang."
            )
        if is_bolted_on(operators[index]) and not allow_reduced_order:
            raise InputError(
                f"`{scheme.name}` flows backwards over a part of its step, and {labels[index]} ends in a projection "
                "that has no inverse and caps the order at 1. Choose the placement pre or tangent, or a scheme "
                "without negative fractions, such as strang, or set allow_reduced_order "
                "(--splitting.allow-reduced-order)."
            )
