"""Tables of texts: ruled on a terminal, aligned columns elsewhere."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, num_last: int = 0) -> None:
    """Print a table whose first column is text and whose others are numbers.

    Args:
        title: what it is of.
        header: a name a column.
        rows: the texts.
        num_last: how many of the last rows stand apart, as sums do.
    """
    console = Console()
    if console.is_terminal:
        table = Table(title=Text(title), title_justify="left", title_style="bold", header_style="dim")
        for position, name in enumerate(header):
            table.add_column(Text(name), justify="right" if position else "left", overflow="fold")
        for position, row in enumerate(rows):
            is_last_before = position == len(rows) - num_last - 1
            table.add_row(
                *map(Text, row), end_section=is_last_before, style="bold" if position >= len(rows) - num_last else ""
            )
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in [header, *rows]
    ]
    print("\n".join([title, *(f"  {line}" for line in lines)]))
