"""Command-line words to dataclasses, through tyro; every refusal is one sentence."""

import contextlib
import io
import re
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ctt.config.error import InputError, suggest
from ctt.config.serialize import flatten_config

T = TypeVar("T")

_HELP = "Pass --help for every field with its default and meaning."


def parse_arguments(cls: type[T], arguments: list[str], *, default: T, prog: str, description: str | None = None) -> T:
    """Parse command-line words into a dataclass through tyro; a refusal becomes an `InputError`.

    Args:
        cls: the dataclass; nested dataclasses give dotted flags.
        arguments: the words after the command's name.
        default: the values that words override.
        prog: what the help calls the program.
        description: what the help says first.

    Returns:
        An instance of `cls`.

    Raises:
        InputError: an unknown flag (with the nearest), an unknown name, or a value of the wrong type.
        SystemExit: help was asked for.
    """
    import tyro

    _refuse_unknown_flags(arguments, default)
    refusal = io.StringIO()
    try:
        with contextlib.redirect_stderr(refusal):
            return tyro.cli(cls, args=arguments, default=default, prog=prog, description=description)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        raise InputError(_refusal(cls, arguments, refusal.getvalue())) from None


def _refuse_unknown_flags(arguments: list[str], default: Any) -> None:
    known: dict[str, str] = {}
    for path, value in flatten_config(default).items():
        if path == "config_file":
            continue  # A word of its own, without a flag.
        path = path.removeprefix("config.")
        known[path.replace("_", "-")] = path
        if isinstance(value, bool):
            head, _, tail = path.rpartition(".")
            known[f"{head}.no-{tail}".lstrip(".").replace("_", "-")] = path
    for word in arguments:
        if not re.match(r"--[A-Za-z]", word):
            continue
        flag = word[2:].partition("=")[0].replace("_", "-")
        if flag not in known and flag != "help":
            near = suggest(flag, known).partition("Known:")[0].replace("`", "", 2).strip().rstrip("?")
            near = f": {near.replace('did you mean ', 'did you mean --')}? " if near else ". "
            raise InputError(f"`{word}` is not a field{near}{_HELP}")


def _refusal(cls: type, arguments: list[str], box: str) -> str:
    """Return what tyro's framed refusal says, in the form of every other refusal."""
    lines = [line.strip("│╭╮╰╯─|+- \t") for line in box.splitlines()]
    text = " ".join(line for line in lines if line)
    stray = re.search(r"Unrecognized options: (.*?)(?: For full helptext|$)", text)
    if stray:
        return f"`{stray[1]}` is not expected here: fields are given as --field value. {_HELP}"
    missing = re.search(r"Missing from (ctt \w+): (\w+)", text)
    if missing:
        return f"`{missing[1]}` needs {missing[2]}, such as: {missing[1]} runs/digits_vit. {_HELP}"
    named = re.search(r"--([A-Za-z][\w.-]*)", text)
    hint = _hint(cls, named[1].replace("-", "_")) if named else None
    if named is None or hint is None:
        return f"{text} {_HELP}"
    words = _words_after(named[1], arguments)
    words = words if get_origin(_without_none(hint)) is tuple else words[:1]
    received = f"`{' '.join(words)}`" if words else "nothing"
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    choices_text = f": {suggest(words[0] if words else '', choices)}" if choices else ""
    return f"`{named[1].replace('-', '_')}` must be {_describe(hint)}, got {received}{choices_text}. {_HELP}"


def _words_after(flag: str, arguments: list[str]) -> list[str]:
    received: list[str] = []
    is_inside = False
    for word in arguments:
        if re.match(r"--[A-Za-z]", word):
            name, _, value = word[2:].partition("=")
            is_inside = name.replace("_", "-") == flag.replace("_", "-")
            received = ([value] if value else []) if is_inside else received
        elif is_inside:
            received.append(word)
    return received


def _hint(cls: type, path: str) -> Any:
    """Return the declared type of a field, or None if there is no such field."""
    hint: Any = cls
    for name in path.split("."):
        hints = get_type_hints(hint)
        if name not in hints and "config" in hints:
            hints = get_type_hints(hints["config"])
        if name not in hints:
            return None
        hint = hints[name]
    return hint


def _without_none(hint: Any) -> Any:
    is_union = get_origin(hint) in (Union, types.UnionType)
    return next(a for a in get_args(hint) if a is not type(None)) if is_union else hint


def _describe(hint: Any, *, is_plural: bool = False) -> str:
    """Return a type as a reader says it.

    Example:
        >>> _describe(tuple[int, int, int] | None)
        '3 integers or None'
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("None" if a is type(None) else _describe(a) for a in arguments)
    if origin is Literal:
        return "known names" if is_plural else "a known name"
    if origin is tuple:
        count = "" if arguments[-1] is Ellipsis else f"{len(arguments)} "
        return count + _describe(arguments[0], is_plural=True)
    nouns = {int: "integer", float: "number", str: "text", bool: "flag"}
    noun = nouns.get(hint, "path")
    if is_plural:
        return f"{noun}s"
    return noun if hint is str else f"an {noun}" if hint is int else f"a {noun}"
