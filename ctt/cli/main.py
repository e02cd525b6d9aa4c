"""``ctt COMMAND``: dispatch, exit statuses, and messages without tracebacks."""

import functools
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

import ctt
from ctt.config.error import InputError, RunStoppedError, suggest
from ctt.training.compilation import enable_compilation_cache

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

COMMANDS = {
    "train": "train a model: ctt train CONFIG [--field.sub value ...] [--out DIR] [--resume DIR]",
    "eval": "loss, accuracy, calibration and confusions of a run: ctt eval RUN [--split test]",
    "predict": "classes of image files: ctt predict RUN IMAGE...",
    "import": "a run from the weights of timm or Hugging Face: ctt import FILE --out RUN",
    "export": "weights for timm or Hugging Face, or the model as one file: ctt export RUN --format NAME --out PATH",
    "verify": "order certificate and exact recoveries, in float64: ctt verify [CONFIG] [--field.sub value ...]",
    "report": "curves and pictures of a run, and one page with all of it: ctt report RUN [--out DIR]",
    "info": "parameters, FLOPs and memory without running: ctt info CONFIG [--field.sub value ...]",
}
"""Commands, each a module of this package with a function `run`, and what the help says of them."""

_MODULES = {"import": "import_weights", "export": "export_weights"}
"""Modules whose name is not their command's: `import` is a word of Python."""

_STATUS_INPUT, _STATUS_PIPE, _STATUS_TERMINATED = 2, 141, 143


def usage() -> str:
    """Return the help of ``ctt`` itself."""
    lines = [f"  {name:<9}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: ctt COMMAND ...",
            "",
            "Train Transformers as controlled dynamical systems.",
            "",
            *lines,
            "",
            "ctt COMMAND --help shows every flag with its default; train, verify and info take all fields of a config.",
            "Every command takes --json FILE (write there what is printed) and --debug (show tracebacks).",
            "Exit status: 0 done, 1 a check does not hold or training diverged, 2 wrong input, 130 or 143 interrupted.",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after ``ctt``; None: those of the process.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone, as in `ctt ... | head`; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _STATUS_PIPE
    return status


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else _STATUS_INPUT
    if words[0] in ("-V", "--version"):
        print(f"ctt {ctt.__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        return _fail(f"ctt: `{name}` is not a command: {suggest(name, COMMANDS)}.", _STATUS_INPUT)
    return _run(name, rest)


def _run(name: str, words: list[str]) -> int:
    signal.signal(signal.SIGTERM, _terminate)
    _heed_dropped_exits()
    if "jax" not in sys.modules and not {"-h", "--help"} & set(words):
        note = enable_compilation_cache()
        if note is not None:
            print(f"ctt {name}: {note}", file=sys.stderr)
    try:
        return importlib.import_module(f"ctt.cli.{_MODULES.get(name, name)}").run(words)
    except InputError as error:
        if "--debug" in words:
            raise
        return _fail(f"ctt {name}: {error}", _STATUS_INPUT)
    except RunStoppedError as error:
        if "--debug" in words:
            raise
        return _fail(f"ctt {name}: {error}", error.exit_status)
    except KeyboardInterrupt:
        return _fail(f"ctt {name}: interrupted.", 128 + signal.SIGINT)
    except BrokenPipeError:
        raise
    except OSError as error:
        if "--debug" in words:
            raise
        place = f" (`{error.filename}`)" if error.filename else ""
        return _fail(
            f"ctt {name}: {error.strerror or error}{place}. Check the path, its permissions and the free space.",
            _STATUS_INPUT,
        )


def _terminate(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    sys.exit(_STATUS_TERMINATED)


@functools.cache
def _heed_dropped_exits() -> None:
    """End the process where a signal comes while Python is in a callback, such as jax's of garbage collection.

    What a handler raises there goes no further than to a note on the error output, and the signal would be lost.
    """
    show = sys.unraisablehook

    def hook(unraisable: "UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, SystemExit):
            os._exit(_STATUS_TERMINATED)
        show(unraisable)

    sys.unraisablehook = hook


def _fail(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
