"""Where the measures of a run go: one protocol, several places as one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from ctt.config.schema import Config
from ctt.training.directory import RunDirectory
from ctt.training.telemetry.metrics_file import MetricsFile
from ctt.training.telemetry.tensorboard import TensorBoardSink
from ctt.training.telemetry.weights_and_biases import WandbSink, import_wandb


class Sink(Protocol):
    """A place for measures."""

    def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Put down what was measured.

        Args:
            step: number of finished updates.
            split: what was measured on, ``train``, ``val`` or ``test``.
            values: measures by name: numbers, and dictionaries of lists of numbers.
        """
        ...

    def rewind(self, step: int) -> None:
        """Drop what was measured after a step, which is about to be measured again.

        Args:
            step: the step that training goes on from.
        """
        ...

    def close(self) -> None:
        """Put down what is not yet, and let go."""
        ...


class OptionalSink:
    """A sink that training can do without: what fails is named once and left alone from then on."""

    def __init__(self, name: str, build: Callable[[], Sink], warn: Callable[[str], None]):
        """Open the sink, or say why not.

        Args:
            name: what a person calls it.
            build: opens it.
            warn: where a failure is reported.
        """
        self._name, self._warn = name, warn
        self._sink: Sink | None = None
        self._attempt(lambda: setattr(self, "_sink", build()))

    def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `Sink`."""
        if (sink := self._sink) is not None:
            self._attempt(lambda: sink.write(step, split, values))

    def rewind(self, step: int) -> None:
        """See `Sink`."""
        if (sink := self._sink) is not None:
            self._attempt(lambda: sink.rewind(step))

    def close(self) -> None:
        """See `Sink`."""
        if (sink := self._sink) is not None:
            self._attempt(sink.close)
            self._sink = None

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # Whatever a service or its package does wrong, training goes on.
            self._sink = None
            first = (str(error).strip().splitlines() or [""])[0]
            self._warn(
                f"Warning: nothing more goes to {self._name} ({type(error).__name__}: {first}); training goes on, and "
                "metrics.jsonl has everything."
            )


class Sinks:
    """Several sinks as one."""

    def __init__(self, sinks: Sequence[Sink]):
        """Gather sinks.

        Args:
            sinks: written to in this order.
        """
        self._sinks = tuple(sinks)

    def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """See `Sink`."""
        for sink in self._sinks:
            sink.write(step, split, values)

    def rewind(self, step: int) -> None:
        """See `Sink`."""
        for sink in self._sinks:
            sink.rewind(step)

    def close(self) -> None:
        """See `Sink`."""
        for sink in self._sinks:
            sink.close()


def check_sinks(config: Config) -> None:
    """Check that the packages of the sinks are installed.

    Args:
        config: a resolved config.

    Raises:
        InputError: `logging.wandb` is given and its package is not installed.
    """
    if config.logging.wandb is not None:
        import_wandb()


def open_sinks(
    config: Config, directory: RunDirectory, manifest: Mapping[str, Any], step: int, warn: Callable[[str], None]
) -> Sinks:
    """Open the sinks of a run.

    `metrics.jsonl` is the record of the run, and an error there is an error. TensorBoard and Weights & Biases are
    copies: where one of them fails, it is named once and dropped. Of several hosts, the first one writes.

    Args:
        config: a resolved config.
        directory: the run directory, which exists.
        manifest: the run's manifest.
        step: the step that training goes on from; 0 for a new run. What was measured later is dropped.
        warn: where a failure of a copy is reported.

    Returns:
        All of them as one, rewound to the step.

    Raises:
        InputError: see `check_sinks`.
        OSError: `metrics.jsonl` cannot be written.
    """
    check_sinks(config)
    if jax.process_index() != 0:
        return Sinks(())
    sinks: list[Sink] = [MetricsFile(directory)]
    if config.logging.tensorboard:
        folder = directory.path / "tensorboard"
        sinks.append(OptionalSink("TensorBoard", lambda: TensorBoardSink(folder), warn))
    if (project := config.logging.wandb) is not None:
        sinks.append(
            OptionalSink("Weights & Biases", lambda: WandbSink(project, config, directory.path, manifest), warn)
        )
    composite = Sinks(sinks)
    composite.rewind(step)
    return composite
