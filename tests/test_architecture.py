"""Imports run one way, files are short, and `import ctt` is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ctt

ROOT = Path(ctt.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))

# A folder imports only what stands to its left.
LEVELS = [
    {"config", "typing"},
    {"dynamics"},
    {"controls"},
    {"splitting"},
    {"adjoints"},
    {"models"},
    {"certificates", "interchange"},
    {"optimal_control"},
    {"training"},
    {"sweep", "reports"},
    {"cli"},
]
RANKS = {folder: rank for rank, level in enumerate(LEVELS) for folder in level}
MAY_IMPORT_DATA = {"training", "sweep", "reports", "cli"}


def folder_of(file):
    """Return the folder of a file of `ctt`, ``__main__.py`` being part of the command line."""
    first = file.partition("/")[0].removesuffix(".py")
    return "cli" if first == "__main__" else first


def imported_folders(file):
    """Return the folders of `ctt` that a file imports, wherever in it; `ctt` itself, for its version, is none."""
    tree = ast.parse((ROOT / file).read_text())
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = [module.split(".") for module in modules]
    return {part[1] for part in parts if part[0] == "ctt" and len(part) > 1 and not part[1].startswith("__")}


def may_import(folder, imported):
    if imported == folder:
        return True
    if folder == "data":
        return imported == "config"
    if imported == "data":
        return folder in MAY_IMPORT_DATA
    return RANKS[imported] < RANKS[folder]


MODULES = [file for file in FILES if file != "__init__.py"]


@pytest.mark.parametrize("file", MODULES)
def test_a_file_belongs_to_a_known_folder(file):
    assert folder_of(file) in {*RANKS, "data"}


@pytest.mark.parametrize("file", MODULES)
def test_a_file_imports_only_what_stands_to_its_left(file):
    folder = folder_of(file)
    assert not {imported for imported in imported_folders(file) if not may_import(folder, imported)}


@pytest.mark.parametrize("file", FILES)
def test_a_file_has_at_most_400_lines(file):
    assert len((ROOT / file).read_text().splitlines()) <= 400


@pytest.mark.parametrize("file", FILES)
def test_a_file_says_what_it_is(file):
    assert ast.get_docstring(ast.parse((ROOT / file).read_text()))


@pytest.mark.parametrize("name", ctt.__all__)
def test_a_public_name_resolves(name):
    assert getattr(ctt, name).__name__ == name


@pytest.mark.parametrize("name", ctt.__all__)
def test_a_public_name_is_listed(name):
    assert name in dir(ctt)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'integrat'"):
        ctt.integrat  # noqa: B018


@pytest.mark.parametrize(
    "statement",
    ["import ctt", "import ctt.config", "from ctt import Config, load_config", "import ctt.cli.main"],
)
def test_what_answers_at_once_does_not_import_jax(statement):
    code = f"import sys; {statement}; assert 'jax' not in sys.modules, 'jax is imported'"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_parsing_overrides_does_not_import_jax(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from ctt.config import Config\ndef get_config(): return Config()\n")
    code = (
        f"import sys; from ctt.config import load_config; load_config({str(path)!r}, ['--seed', '1']); "
        "assert 'jax' not in sys.modules, 'jax is imported'"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_no_two_test_files_share_a_name():
    """Pytest imports them by their names alone."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
