"""A curve in braille characters, two by four dots each."""

import itertools
import math
from collections.abc import Sequence

from rich.text import Text

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of U+2800 by row and column of a character."""
_DECADES = 1.0
"""A curve over more decades than this is drawn on a logarithmic axis."""

Point = tuple[float, float]


def draw_curve(
    line: Sequence[Point], marks: Sequence[Point], *, width: int, height: int, styles: tuple[str, str]
) -> list[Text]:
    """Return a plot with its axis of values on the left, one text a row.

    Args:
        line: points `(x, y)` in the order of `x`, at least one, all finite; drawn as one line.
        marks: points that are drawn as bullets on top.
        width: characters a row, the axis included, >= 16.
        height: rows, >= 2.
        styles: of the line and of the marks.
    """
    values = [y for _, y in (*line, *marks)]
    low, high = min(values), max(values)
    is_log = low > 0 and math.log10(high / low) > _DECADES
    labels = [_label(high), *[""] * (height - 2), _label(low)]
    margin = max(map(len, labels)) + 1
    columns = width - margin - 1

    def scale(y: float) -> float:
        """Return where a value is between the bottom, 0, and the top, 1."""
        if high == low:
            return 0.5
        return math.log(y / low) / math.log(high / low) if is_log else (y - low) / (high - low)

    first, last = line[0][0], max(line[-1][0], marks[-1][0] if marks else line[-1][0])
    span = (last - first) or 1.0
    cells = [[0] * columns for _ in range(height)]
    previous: int | None = None
    for column, y in enumerate(_resample(line, first, span, 2 * columns)):
        if y is None:
            continue
        row = round((1 - scale(y)) * (4 * height - 1))
        top, bottom = sorted((row, row if previous is None else previous + (row > previous) - (row < previous)))
        for dot in range(top, bottom + 1):
            cells[dot // 4][column // 2] |= _DOTS[dot % 4][column % 2]
        previous = row
    bullets = {
        (round((1 - scale(y)) * (height - 1)), round((x - first) / span * (columns - 1)))
        for x, y in marks
        if x >= first
    }
    rows = []
    for row, bits in enumerate(cells):
        axis = "┤" if labels[row] else "│"
        text = Text(f"{labels[row]:>{margin - 1}} {axis}", style="dim", no_wrap=True)
        for column, bit in enumerate(bits):
            if (row, column) in bullets:
                text.append("●", styles[1])
            else:
                text.append(chr(0x2800 + bit) if bit else " ", styles[0])
        rows.append(text)
    return rows


def _resample(line: Sequence[Point], first: float, span: float, columns: int) -> list[float | None]:
    """Return the mean of the points in each column, and between columns with points a straight line."""
    sums, counts = [0.0] * columns, [0] * columns
    for x, y in line:
        column = min(max(round((x - first) / span * (columns - 1)), 0), columns - 1)
        sums[column] += y
        counts[column] += 1
    means = [total / count if count else None for total, count in zip(sums, counts, strict=True)]
    known = [column for column, mean in enumerate(means) if mean is not None]
    for left, right in itertools.pairwise(known):
        begin, end = means[left], means[right]
        assert begin is not None
        assert end is not None
        for column in range(left + 1, right):
            means[column] = begin + (end - begin) * (column - left) / (right - left)
    return means


def _label(value: float) -> str:
    return f"{value:.1e}" if value and not 1e-3 <= abs(value) < 1e4 else f"{value:.3g}"
