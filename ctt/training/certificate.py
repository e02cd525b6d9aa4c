"""The certificate of a run's discretisation, for its manifest."""

from typing import Any

from ctt.certificates.order import certify_order
from ctt.config.compatibility import limit_problem
from ctt.config.error import InputError
from ctt.config.schema import Config


def describe_certificate(config: Config) -> dict[str, Any]:
    """Return the measured order of a config's discretisation, or why it has none, as JSON values.

    Args:
        config: a resolved config.

    Returns:
        ``outcome`` (that of a `Check`, or ``refused``), ``text`` (a sentence), and what was measured.
    """
    try:
        check = certify_order(config)
    except InputError:
        problem = limit_problem(config)
        if problem is None:
            raise
        return {"outcome": "refused", "text": f"Order certificate: none, {problem}."}
    text = f"Order certificate: {check.outcome}, {check.summary}."
    if check.outcome == "does not hold" and check.reason:
        text = f"{text[:-1]}; {check.reason}."
    return {**check.record(), "text": text}
