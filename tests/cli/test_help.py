"""The help: at once, without jax, and with every field, its default and its meaning."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import time

import pytest

from ctt.cli.main import COMMANDS, main
from ctt.config import Config, schema
from ctt.config.serialize import flatten_config


def _read_docstrings():
    """Return the docstring under each field of the config, by dotted path."""
    modules = [
        importlib.import_module(f"{schema.__name__}.{found.name}") for found in pkgutil.iter_modules(schema.__path__)
    ]
    nodes = [node for module in modules for node in ast.parse(inspect.getsource(module)).body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def read(name, prefix):
        body = classes[name].body
        docs = {}
        for node, following in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign):
                continue
            path = prefix + node.target.id
            if ast.unparse(node.annotation) in classes:
                docs |= read(ast.unparse(node.annotation), path + ".")
            else:
                docs[path] = ast.literal_eval(following.value)
        return docs

    return read("Config", "")


FIELDS = _read_docstrings()


@pytest.fixture(scope="module")
def read_help():
    """Return the help of a command as one line of words, once for each command."""
    texts = {}

    def read(command):
        if command not in texts:
            result = subprocess.run(
                [sys.executable, "-m", "ctt", command, "--help"],
                capture_output=True,
                text=True,
                env={"COLUMNS": "90", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", "PATH": ""},
            )
            assert (result.returncode, result.stderr) == (0, "")
            texts[command] = re.sub(r"[│╭╮╰╯─\s]+", " ", result.stdout)
        return texts[command]

    return read


def test_every_field_has_a_docstring():
    assert set(FIELDS) == set(flatten_config(Config()))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("command", ["train", "info"])
def test_help_has_the_field_with_its_meaning_and_default(read_help, command, field):
    flag, meaning = "--" + field.replace("_", "-"), " ".join(FIELDS[field].split())
    default = flatten_config(Config())[field]
    words = {False: "False", True: "True"}.get(default) if isinstance(default, bool) else None
    shown = words or (" ".join(map(str, default)) if isinstance(default, tuple) else str(default))
    pattern = rf"{re.escape(flag)}\b.*?{re.escape(meaning)}.{{0,40}}default: {re.escape(shown)}\)"
    assert re.search(pattern, read_help(command))


@pytest.mark.parametrize("flag", ["--json", "--debug"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_the_common_flags(read_help, command, flag):
    assert flag in read_help(command)


@pytest.mark.parametrize(
    ("command", "flag"),
    [("train", "--out"), ("train", "--resume"), ("eval", "--split"), ("eval", "--batch-size"), ("predict", "--top")],
)
def test_help_of_a_command_has_its_own_flags(read_help, command, flag):
    assert flag in read_help(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_in_process_exits_0(command):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code in (0, None)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_the_usage_names_every_command(capsys, words):
    assert main(words) == 0
    usage = capsys.readouterr().out
    assert [name for name in COMMANDS if f"ctt {name}" not in usage] == []


def test_the_version_is_printed(capsys):
    import ctt

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ctt {ctt.__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["eval", "--help"], ["predict", "--help"]])
def test_help_does_not_import_jax(words):
    code = (
        "import sys; from ctt.cli.main import main\n"
        f"try: main({words!r})\n"
        "except SystemExit: pass\n"
        "print('HEAVY', sorted({'jax', 'flax', 'tensorflow_datasets'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize("words", [["train", "nowhere.py"], ["eval", "nowhere", "--splt", "val"]])
def test_a_refusal_of_words_does_not_import_jax(words):
    code = (
        "import sys; from ctt.cli.main import main\n"
        f"main({words!r})\n"
        "print('HEAVY', sorted({'jax', 'flax', 'tensorflow_datasets'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "HEAVY []"


def test_help_answers_within_half_a_second():
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        subprocess.run([sys.executable, "-m", "ctt", "--help"], capture_output=True, check=True)
        seconds.append(time.monotonic() - begin)
    assert min(seconds) < 0.5


def test_a_reader_that_has_gone_away_ends_the_program_quietly():
    words = f"{sys.executable} -m ctt --help"
    result = subprocess.run(["bash", "-c", f"{words} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
    assert (result.returncode in (0, 141), result.stderr) == (True, "")
