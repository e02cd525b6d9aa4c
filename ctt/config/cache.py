"""Where what can be made again is kept: decoded images and compiled programs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of all caches, which need not exist yet.

    It is ``$CTT_CACHE_DIR``, or else ``ctt`` in ``$XDG_CACHE_HOME``, or else ``~/.cache/ctt``. Anything in it may be
    deleted at any time.
    """
    own, shared = os.environ.get("CTT_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser()
    return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "ctt"
