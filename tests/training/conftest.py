"""The tiny run, for the tests of the training engine."""

from tiny_run import _signal_handlers, compilation_cache, config_file, finished_run

__all__ = ["_signal_handlers", "compilation_cache", "config_file", "finished_run"]
