"""Print rows in the terminal, with their images if the terminal draws images.

Rows are printed as a table if each column gets a readable width. Otherwise each value is a line of its own. Texts are
cut to the width of the terminal, and `--json` prints them whole.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from overnight.cli.terminal_pictures import drawn, protocol_of
from overnight.flows import preview_cells
from overnight.flows.preview_html import thumbnail
from overnight.tasks.config.masking import printable

LEAST_WIDTH = 12  # characters of a column in a table
PICTURE_LINES, PICTURE_PIXELS = 8, 320


def show_rows(console: Console, rows: pa.Table) -> None:
    """Print rows without their `uri`: as a table if the console is wide enough, otherwise with a line per value."""
    shown = rows.drop_columns(["uri"]) if "uri" in rows.column_names else rows
    names, columns = _texts(shown)
    if console.width >= (LEAST_WIDTH + 3) * len(names):
        longest = [max(map(len, [name, *texts])) for name, texts in zip(names, columns, strict=True)]
        widths = _shared(console.width - 3 * len(names) - 1, longest)
        table = Table(
            *(
                Column(Text(name), no_wrap=True, overflow="ellipsis", width=width)
                for name, width in zip(names, widths, strict=True)
            )
        )
        for row in zip(*columns, strict=True):
            table.add_row(*map(Text, row))
        console.print(table)
    else:
        for row in zip(*columns, strict=True):
            console.print(Text(row[0], "bold"), no_wrap=True, overflow="ellipsis")
            for name, text in zip(names[1:], row[1:], strict=True):
                console.print(Text(f"  {name}: {text}"), no_wrap=True, overflow="ellipsis")


def show_reasons(console: Console, rows: pa.Table) -> None:
    """Print rows of a quarantine, all texts whole. The first column, the reason, comes first in red.

    Each other column has a line of its own.
    """
    names, columns = _texts(rows)
    for row in zip(*columns, strict=True):
        console.print(Text(row[0], "red", overflow="fold"))
        for name, text in zip(names[1:], row[1:], strict=True):
            console.print(Text(f"  {name}: {text}", overflow="fold"))


def draws_pictures(console: Console) -> bool:
    """Return True if the console is a terminal that draws images."""
    return console.is_terminal and protocol_of() is not None


def show_pictures(console: Console, tables: Iterable[pa.Table]) -> None:
    """Draw the images in all columns of these tables, if the console is a terminal that draws images."""
    if console.is_terminal and (protocol := protocol_of()):
        for title, png in _pictures(tables):
            console.print(Text(title, "dim"))
            console.file.write(drawn(png, PICTURE_LINES, protocol))


def _shared(room: int, longest: Sequence[int]) -> list[int]:
    """Return a width for each column: that of its longest text, or an equal part of what shorter columns leave."""
    widths = [0] * len(longest)
    order = sorted(range(len(longest)), key=lambda column: longest[column])
    for done, column in enumerate(order):
        widths[column] = min(longest[column], room // (len(longest) - done))
        room -= widths[column]
    return widths


def _texts(rows: pa.Table) -> tuple[list[str], list[list[str]]]:
    """Return the names and the values of columns as texts of one line."""
    # Rich measures control characters, which the console makes visible, as nothing
    names = [printable(name) for name in rows.column_names]
    columns = [[printable(preview_cells.text_of(value)) for value in preview_cells.values(one)] for one in rows.columns]
    return names, columns


def _pictures(tables: Iterable[pa.Table]) -> Iterator[tuple[str, str]]:
    """Yield a title and a PNG in Base64 for each image."""
    for table in tables:
        for name in table.column_names:
            for place, value in enumerate(preview_cells.values(table[name])):
                if (image := preview_cells.pixels(value)) is not None:
                    yield f"{table['row_id'][place].as_py()} {name}", thumbnail(image, PICTURE_PIXELS)
