import ast
import dataclasses
import importlib
import inspect
import pkgutil

import pytest

from ctt.config import Config, schema
from ctt.config.arguments import parse_arguments
from ctt.config.serialize import flatten_config

MODULES = [
    importlib.import_module(f"{schema.__name__}.{module.name}") for module in pkgutil.iter_modules(schema.__path__)
]
CLASSES = {
    node.name: node
    for module in MODULES
    for node in ast.parse(inspect.getsource(module)).body
    if isinstance(node, ast.ClassDef)
}


def list_fields():
    """Return (class, field, has a docstring) for every field that is not a nested config."""
    found = []
    for cls in CLASSES.values():
        for node, following in zip(cls.body, [*cls.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) not in CLASSES:
                is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                found.append((cls.name, node.target.id, is_text and bool(following.value.value.strip())))
    return found


@pytest.mark.parametrize(("cls", "field", "has_help"), list_fields())
def test_a_field_has_help(cls, field, has_help):
    assert has_help, f"{cls}.{field} has no docstring under it"


@pytest.mark.parametrize("cls", CLASSES)
def test_a_part_of_the_config_has_help(cls):
    assert ast.get_docstring(CLASSES[cls])


@pytest.mark.parametrize("cls", CLASSES)
def test_a_part_of_the_config_is_frozen(cls):
    instance = getattr(schema, cls)()
    field = dataclasses.fields(instance)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(instance, field, None)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_part_of_the_config_takes_keywords_only(cls):
    with pytest.raises(TypeError, match="positional"):
        getattr(schema, cls)(1)


@pytest.fixture(scope="module")
def help_text():
    """What --help prints."""
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as exit_:
        parse_arguments(Config, ["--help"], default=Config(), prog="test")
    assert exit_.value.code in (0, None)
    return printed.getvalue()


@pytest.mark.parametrize("path", flatten_config(Config()))
def test_the_help_shows_every_field(help_text, path):
    flag = path.replace("_", "-")
    assert f"--{flag}" in help_text
