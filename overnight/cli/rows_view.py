"""Print rows in the terminal, with their images if the terminal draws images.

Rows are printed as a table if each column gets a readable width. Otherwise each value is a line of its own. Texts are
cut to the width of the terminal, and `--json` prints them whole.

The protocols for images are https://sw.kovidgoyal.net/kitty/graphics-protocol/ (also Ghostty) and
https://iterm2.com/documentation-images.html (also WezTerm and mintty). tmux and screen do not pass them on.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from overnight.flows import preview_cells
from overnight.tasks.config.masking import printable
from overnight.tasks.rows.sample_table import picture

LEAST_WIDTH = 12  # characters of a column in a table
PICTURE_LINES, PICTURE_PIXELS = 8, 320
PIECE = 4096  # the largest piece of Base64 that kitty takes


def show_rows(console: Console, rows: pa.Table) -> None:
    """Print rows without their `uri`: as a table if the console is wide enough, otherwise with a line per value."""
    columns = _texts(rows.drop_columns(["uri"]) if "uri" in rows.column_names else rows)
    names, lines = list(columns), zip(*columns.values(), strict=True)
    if console.width >= (LEAST_WIDTH + 3) * len(names):
        longest = [max(map(len, [name, *texts])) for name, texts in columns.items()]
        widths = _widths(console.width - 3 * len(names) - 1, longest)
        table = Table()
        for name, width in zip(names, widths, strict=True):
            table.add_column(Text(name), no_wrap=True, overflow="ellipsis", width=width)
        for line in lines:
            table.add_row(*map(Text, line))
        console.print(table)
        return
    for first, *texts in lines:
        console.print(Text(first, "bold"), no_wrap=True, overflow="ellipsis")
        for name, text in zip(names[1:], texts, strict=True):
            console.print(Text(f"  {name}: {text}"), no_wrap=True, overflow="ellipsis")


def show_reasons(console: Console, rows: pa.Table) -> None:
    """Print rows of a quarantine, all texts whole. The first column, the reason, comes first in red.

    Each other column has a line of its own.
    """
    columns = _texts(rows)
    for reason, *texts in zip(*columns.values(), strict=True):
        console.print(Text(reason, "red", overflow="fold"))
        for name, text in zip(list(columns)[1:], texts, strict=True):
            console.print(Text(f"  {name}: {text}", overflow="fold"))


def draws_pictures(console: Console) -> bool:
    """Return True if the console is a terminal that draws images."""
    return console.is_terminal and protocol_of() is not None


def show_pictures(console: Console, tables: Iterable[pa.Table]) -> None:
    """Draw the images in all columns of these tables, if the console is a terminal that draws images."""
    protocol = protocol_of()
    if not console.is_terminal or protocol is None:
        return
    for table in tables:
        for name in table.column_names:
            for row, value in enumerate(preview_cells.values(table[name])):
                if (image := preview_cells.pixels(value)) is not None:
                    console.print(Text(f"{table['row_id'][row].as_py()} {name}", "dim"))
                    console.file.write(drawn(picture(image, PICTURE_PIXELS), PICTURE_LINES, protocol))


def protocol_of(environment: Mapping[str, str] = os.environ) -> Literal["kitty", "iterm2"] | None:
    """Return the protocol of the terminal that started this process; None if it is not known to draw pictures."""
    program, kind = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    if "TMUX" in environment or kind.startswith(("screen", "tmux")):
        return None
    if "KITTY_WINDOW_ID" in environment or kind in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty") or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return None


def drawn(png: str, lines: int, protocol: Literal["kitty", "iterm2"]) -> str:
    """Return the escape sequence that draws a PNG at the cursor, and then moves to the line below it.

    `png` is the picture in Base64, and `lines` is its height in lines of text.
    """
    if protocol == "iterm2":
        return f"\x1b]1337;File=inline=1;height={lines};preserveAspectRatio=1:{png}\x07\n"
    sequence = ""
    keys = f"a=T,f=100,r={lines},q=2,"  # q=2: the terminal sends no answer
    for start in range(0, len(png), PIECE):
        has_more = start + PIECE < len(png)
        sequence += f"\x1b_G{keys}m={has_more:d};{png[start : start + PIECE]}\x1b\\"
        keys = ""
    return sequence + "\n"


def _widths(room: int, longest: Sequence[int]) -> list[int]:
    """Return a width for each column: that of its longest text, or an equal part of what shorter columns leave."""
    widths = [0] * len(longest)
    order = sorted(range(len(longest)), key=lambda column: longest[column])
    for number, column in enumerate(order):
        widths[column] = min(longest[column], room // (len(longest) - number))
        room -= widths[column]
    return widths


def _texts(rows: pa.Table) -> dict[str, list[str]]:
    """Return the values of columns as texts of one line."""
    columns = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        texts = map(preview_cells.text_of, preview_cells.values(column))
        # Rich measures control characters, which the console makes visible, as nothing
        columns[printable(name)] = list(map(printable, texts))
    return columns
