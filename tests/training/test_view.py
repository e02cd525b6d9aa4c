"""The live view of a run at any size of a terminal, and the curve in it."""

import io
import itertools
import math
import re

import pytest
from rich.console import Console

from ctt.training.progress import LineReporter, TerminalReporter, build_reporter, describe_measures
from ctt.training.telemetry.curve import draw_curve
from ctt.training.telemetry.view import RunFacts, RunView

FACTS = RunFacts(name="tiny", scheme="lie + euler, 2 steps to t = 2", place="runs/tiny", steps_per_epoch=50)
MEASURES = {
    "accuracy": 0.5,
    "learning_rate": 1e-3,
    "gradient_norm": 0.25,
    "update_norm": 0.01,
    "parameter_norm": 51.25,
    "images_per_second": 1234.0,
    "step_seconds": 0.0125,
    "input_stall": 0.001,
    "host_overhead": 0.013,
    "compile_seconds": 2.5,
    "device_memory_bytes": 3.0 * 2**30,
}
WHAT = {
    "name": "tiny · lie + euler, 2 steps to t = 2",
    "place": "runs/tiny",
    "step": "step 80/100",
    "share": "80%",
    "left": "1 min 00 s left",
    "loss": "loss 0.25",
    "accuracy": "accuracy 50.0%",
    "rate": "rate 1.00e-03",
    "last": "accuracy 60.00% at 80",
    "best": "best 70.00% at 60",
    "gradient": "gradient 0.25",
    "update": "update 0.01",
    "weights": "weights 51.25",
    "throughput": "1,234 images/s",
    "step time": "12.5 ms a step",
    "compiled": "compiled 2.5 s",
    "stall": "input stall 0.1%",
    "overhead": "host overhead 1.3%",
    "memory": "3.00 GiB on the device",
    "saved": "step 60, 1 min 00 s ago",
    "legend": "── train loss   ● val loss",
}


@pytest.fixture(scope="module")
def view():
    """A run that began at step 60, four minutes ago."""
    now = [0.0]
    view = RunView(FACTS, total=100, done=60, clock=lambda: now[0])
    for step in range(10, 81, 10):
        view.show(step, "train", {**MEASURES, "loss": 20.0 / step})
    view.show(60, "val", {"loss": 0.5, "accuracy": 0.7})
    view.show(80, "val", {"loss": 0.4, "accuracy": 0.6})
    view.show(80, "test", {"loss": 99.0, "accuracy": 0.9})
    view.mark_saved(60)
    now[0] = 60.0
    view.advance(80)
    return view


def draw(view, width, height, **settings):
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, **settings)
    console.print(view)
    return console.file.getvalue()


def draw_plain(view, width, height):
    return re.sub(r"\x1b\[[\d;]*m", "", draw(view, width, height)).rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [60, 80, 109, 110, 140, 200])
@pytest.mark.parametrize("what", WHAT)
def test_everything_is_shown_at_a_common_width(view, width, what):
    assert WHAT[what] in "\n".join(draw_plain(view, width, 30))


@pytest.mark.parametrize("width", [20, 39, 40, 47, 60, 80, 110, 200])
@pytest.mark.parametrize("height", [2, 5, 9, 12, 16, 20, 24, 60])
def test_the_view_fits(view, width, height):
    lines = draw_plain(view, width, height)
    assert len(lines) <= max(height - 1, 1)
    assert max(map(len, lines)) <= width


def test_a_wide_view_is_framed_to_its_width(view):
    assert {len(line) for line in draw_plain(view, 120, 30)} == {120}


def test_without_colour_no_colour_is_written(view, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    codes = re.findall(r"\x1b\[([\d;]*)m", draw(view, 100, 30))
    assert {code for group in codes for code in group.split(";")} <= {"", "0", "1", "2"}


def test_a_run_that_has_measured_nothing_can_be_drawn():
    lines = draw_plain(RunView(FACTS, total=100, done=0), 80, 24)
    assert "step 0/100" in lines[1]
    assert "-- left" in lines[1]


def test_a_loss_that_is_no_number_is_left_out():
    view = RunView(FACTS, total=100, done=0)
    for step, loss in enumerate([1.0, math.nan, math.inf, None, 0.5]):
        view.show(step, "train", {"loss": loss})
        view.show(step, "val", {"loss": loss})
    assert "1 ┤" in "\n".join(draw_plain(view, 80, 24))


def test_a_run_that_is_stopping_says_so(view):
    other = RunView(FACTS, total=100, done=0)
    other.note_stop()
    assert "Stopping after this step and a checkpoint" in "\n".join(draw_plain(other, 80, 24))
    assert "Stopping" not in "\n".join(draw_plain(view, 80, 24))


def test_many_points_are_thinned_and_the_newest_kept():
    view = RunView(FACTS, total=100_000, done=0)
    for step in range(9000):
        view.show(step, "train", {"loss": 1.0 + step})
    assert len(view._line) <= 4000
    assert view._line[0] == (0.0, 1.0)
    assert view._line[-1] == (8999.0, 9000.0)


def rows(line, marks=(), *, width=30, height=4):
    return [row.plain for row in draw_curve(line, marks, width=width, height=height, styles=("", ""))]


def dots(row, axis):
    """Return the columns of a row with a dot in them, from the axis on."""
    return [column for column, char in enumerate(row.split(axis)[1]) if char != " "]


def test_a_straight_line_goes_from_the_top_left_to_the_bottom_right():
    drawn = rows([(0.0, 3.0), (10.0, 1.0)])
    columns = [dots(row, axis) for row, axis in zip(drawn, "┤││┤", strict=True)]
    assert drawn[0].startswith("3 ┤")
    assert drawn[-1].startswith("1 ┤")
    assert columns[0][0] == 0
    assert columns[-1][-1] == 26
    assert sorted({column for row in columns for column in row}) == list(range(27))
    assert all(above[-1] <= below[0] + 1 for above, below in itertools.pairwise(columns))


def test_a_loss_over_decades_is_straight_on_its_axis():
    decay = [(float(x), 10.0 ** (-x / 10)) for x in range(31)]
    middle = rows(decay, width=36, height=5)[2]
    assert len(middle.split("│")[1].strip()) < 10


def test_a_constant_and_a_single_point_can_be_drawn():
    assert "⠒" in rows([(0.0, 1.0), (5.0, 1.0)], height=3)[1] or "⠤" in rows([(0.0, 1.0), (5.0, 1.0)], height=3)[1]
    assert len(rows([(7.0, -1.0)])) == 4


def test_marks_are_where_they_belong():
    drawn = rows([(0.0, 0.0), (10.0, 1.0)], [(10.0, 0.0)])
    assert [row.count("●") for row in drawn] == [0, 0, 0, 1]
    assert drawn[-1].endswith("●")


def test_a_terminal_shows_the_view_and_lines_above_it():
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    reporter = TerminalReporter(console)
    reporter.show(5, "train", {"loss": 9.5})  # Of another run.
    reporter.introduce(FACTS)
    reporter.show(10, "train", {"loss": 1.5})  # Of an earlier session.
    reporter.start("training", 100, 20)
    reporter.show(30, "train", {**MEASURES, "loss": 0.5})
    reporter.advance(30, "", is_milestone=True)
    reporter.say("step 30: val loss [0.4]")
    reporter.mark_saved(30)
    reporter.stop()
    written = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "step 30: val loss [0.4]\n" in written
    last = written[written.rindex("╭") :]
    assert "step 30/100" in last
    assert "1.5 ┤" in last
    assert "saved  step 30, 0 s ago" in last
    assert console.file.getvalue().rfind("\x1b[?25h") > console.file.getvalue().rfind("\x1b[?25l")


def test_other_work_has_a_plain_bar():
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    reporter = TerminalReporter(console)
    reporter.start("reading images", 10, 0)
    reporter.advance(10, "", is_milestone=True)
    reporter.stop()
    assert "reading images" in console.file.getvalue()
    assert "╭" not in console.file.getvalue()


def test_a_terminal_that_grows_narrower_is_cleared(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"COLUMNS": "100", "LINES": "30"})
    reporter = TerminalReporter(console)
    reporter.introduce(FACTS)
    reporter.start("training", 100, 0)
    assert "\x1b[2J" not in console.file.getvalue()
    console.width = 80
    reporter.stop()
    assert "\x1b[2J" in console.file.getvalue()


@pytest.mark.parametrize(("term", "kind"), [("xterm", TerminalReporter), ("dumb", LineReporter)])
def test_a_terminal_that_cannot_move_back_gets_lines(monkeypatch, term, kind):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert isinstance(build_reporter(), kind)


def test_a_line_says_what_was_measured():
    assert describe_measures({**MEASURES, "loss": 0.5}) == (
        "loss 0.500  accuracy 50.0%  1,234 images/s  stall 0.1%  overhead 1.3%"
    )
