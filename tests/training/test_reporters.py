"""What a person sees of a run: plain lines in a log, a progress bar on a terminal."""

import io
import re

import pytest
from rich.console import Console
from tiny_run import TOTAL

import ctt
from ctt.training.loop import train
from ctt.training.progress import LineReporter, SilentReporter, TerminalReporter, build_reporter


@pytest.fixture(scope="module")
def show(compilation_cache, config_file, tmp_path_factory):
    """Train the tiny run with a reporter to a stream and return what it wrote, once for each."""
    shown = {}

    def run(kind, **settings):
        if kind not in shown:
            stream = io.StringIO()
            reporter = kind(Console(file=stream, width=140, **settings))
            train(ctt.load_config(config_file), out=tmp_path_factory.mktemp("runs") / "run", reporter=reporter)
            shown[kind] = stream.getvalue()
        return shown[kind]

    return run


@pytest.fixture(scope="module")
def lines(show):
    return show(LineReporter)


@pytest.fixture(scope="module")
def bar(show):
    return show(TerminalReporter, force_terminal=True)


def test_lines_are_free_of_control_characters(lines):
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f]", lines) == []


@pytest.mark.parametrize("step", [2, 4, 6])
def test_lines_have_the_measures_at_each_logged_step(lines, step):
    idle = r"(  stall [\d.]+%  overhead [\d.]+%)?"
    pattern = rf"^training {step}/{TOTAL}  loss [\d.]+  accuracy [\d.]+%  [\d,]+ images/s{idle}  \d+ s left$"
    assert re.search(pattern, lines, re.MULTILINE)


@pytest.mark.parametrize("step", [3, 6])
def test_lines_have_the_accuracy_on_val_at_each_evaluation(lines, step):
    assert re.search(rf"^step {step}: val loss [\d.]+, val accuracy [\d.]+%$", lines, re.MULTILINE)


def test_lines_say_what_is_trained_on_what(lines):
    assert re.search(r"^tiny: vit, [\d,]+ parameters, lie \+ euler, 2 steps to t = 2", lines, re.MULTILINE)
    assert "1,257 / 180 / 360 images (train / val / test)" in lines


@pytest.mark.parametrize("measure", [r"loss \d\.\d+", r"accuracy [\d.]+%", r"[\d,]+ images/s", rf"{TOTAL}/{TOTAL}"])
def test_the_bar_shows_the_measure(bar, measure):
    assert re.search(measure, re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", bar))


def test_the_bar_gives_the_cursor_back(bar):
    assert bar.rfind("\x1b[?25h") > bar.rfind("\x1b[?25l")


def test_lines_are_reported_where_there_is_no_terminal():
    assert isinstance(build_reporter(), LineReporter)


def test_library_users_see_nothing(compilation_cache, config_file, tmp_path, capsys):
    train(ctt.load_config(config_file), out=tmp_path / "run", reporter=SilentReporter())
    assert capsys.readouterr() == ("", "")


def test_a_line_with_brackets_is_printed_as_it_is():
    stream = io.StringIO()
    LineReporter(Console(file=stream)).say("[bold]runs/[1]")
    assert stream.getvalue() == "[bold]runs/[1]\n"
