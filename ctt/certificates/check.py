"""One claim and its outcome."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import jax

Outcome: TypeAlias = Literal["holds", "does not hold", "not resolved"]
"""`not resolved`: the errors are not yet in their asymptotic range, or already round-off."""


@dataclass(frozen=True)
class Check:
    """A claim that was measured.

    Attributes:
        name: what is claimed.
        outcome: whether it holds.
        summary: the numbers that decide, in a few words.
        reason: what limits or explains the result, in words; empty where there is nothing to say.
        values: JSON values.
    """

    name: str
    outcome: Outcome
    summary: str
    reason: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the check as JSON values."""
        return asdict(self)


def check_bound(name: str, received: float, bound: float, *, reason: str = "", **values: Any) -> Check:
    """Return the check that a difference is at most a bound.

    Args:
        name: what is claimed.
        received: the difference.
        bound: the bound.
        reason: see `Check`.
        values: more JSON values.
    """
    outcome: Outcome = "holds" if received <= bound else "does not hold"
    return Check(
        name, outcome, f"{received:.1e} (at most {bound:.0e})", reason, {"received": received, "bound": bound, **values}
    )


@contextlib.contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Compute in float64 on a CPU, whatever the accelerator."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield
