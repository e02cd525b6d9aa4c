"""Reading the data of a run, with its progress shown."""

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.data.dataset import Dataset
from ctt.data.source import load_dataset
from ctt.training.progress import Reporter


def load_with_progress(config: Config, reporter: Reporter) -> Dataset:
    """Load the data of a config, showing how far the decoding is.

    Args:
        config: a resolved config.
        reporter: where progress is shown.

    Raises:
        InputError: see `ctt.data.load_dataset`.
    """
    if config.data.name == "imported":
        raise InputError(
            "`data.name` must be a data set, got 'imported': the run has none yet. Pass --data.name cifar10, "
            "say, and --data.dir."
        )
    is_started = False

    def progress(done: int, total: int) -> None:
        nonlocal is_started
        if not is_started:
            reporter.start("reading images", total, 0)
            is_started = True
        reporter.advance(done, "", is_milestone=done == total)

    try:
        return load_dataset(config.data, progress, reporter.say)
    finally:
        reporter.stop()
