"""The exceptions that the command line turns into one sentence and an exit status."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What the user gave cannot be used; the message says what, why and the way out.

    The command line prints the message alone and exits with status 2. A library user
    sees an ordinary `ValueError`.
    """


class RunStoppedError(Exception):
    """A run ended before its end, with everything saved that could be; the message says how to go on.

    Attributes:
        exit_status: what the command line exits with.
    """

    exit_status: int


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a clause that lists the known names and, where one is near, names it.

    Args:
        name: what was received.
        known: every name that would have been accepted.

    Returns:
        Text such as ``did you mean `strang`? Known: lie, lie_reversed, strang``.

    Example:
        >>> suggest("strnag", ["lie", "strang"])
        'did you mean `strang`? Known: lie, strang'
    """
    names = list(known)
    listing = f"Known: {', '.join(names)}"
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean `{nearest[0]}`? {listing}" if nearest else listing
