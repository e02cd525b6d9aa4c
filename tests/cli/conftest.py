"""The tiny run, for the tests of the command line."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from tiny_run import _signal_handlers, compilation_cache, config_file, finished_run

__all__ = ["_signal_handlers", "compilation_cache", "config_file", "finished_run"]
