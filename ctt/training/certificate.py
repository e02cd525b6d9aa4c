"""The certificate of a run's discretisation, for its manifest."""

from typing import Any

from ctt.certificates.order import certify_order
from ctt.config.compatibility import limit_problem
from ctt.config.error import InputError
from ctt.config.schema import Config


def describe_certificate(config: Config) -> dict[str, Any]:
    """Return the measured order of a config's discretisation, or why it has none, as JSON values.

    A run that is fit to be trained is not stopped here, whatever happens to the small model.

    Args:
        config: a resolved config.

    Returns:
        ``outcome`` (that of a `Check`, or ``refused``), ``text`` (a sentence), and what was measured.
    """
    try:
        check = certify_order(config)
    except InputError as error:
        problem = limit_problem(config)
        if problem is not None:
            return {"outcome": "refused", "text": f"Order certificate: none, {problem}."}
        return _unmeasured(error)
    except Exception as error:  # An operator from outside may want the size of the real model.
        return _unmeasured(error)
    text = f"Order certificate: {check.outcome}, {check.summary}."
    if check.outcome == "does not hold" and check.reason:
        text = f"{text[:-1]}; {check.reason}."
    return {**check.record(), "text": text}


def _unmeasured(error: Exception) -> dict[str, Any]:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return {"outcome": "not resolved", "text": f"Order certificate: not resolved, the small model failed ({reason})."}
