"""Rows as HTML: a table, texts escaped and cut, images as small pictures inside the document.

It is for a preview in a notebook, and for the page of `overnight show`.
"""

import html
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from overnight.flows import preview_cells
from overnight.tasks.config.masking import masked, printable
from overnight.tasks.rows.sample_table import PICTURE_PIXELS, picture

if TYPE_CHECKING:
    from overnight.flows.preview import Preview

ROWS_SHOWN, TEXT_SHOWN = 50, 300
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; }
h1 { font-size: 1.2em; }
table { border-collapse: collapse; }
th, td { border: 1px solid #ddd; padding: 4px 8px; text-align: left; vertical-align: top; max-width: 30em; }
"""


def as_html(preview: "Preview") -> str:
    """Return the rows, the quarantine and the seconds as HTML. It has at most 50 rows of each, and no script."""
    counts = f"{len(preview):,} rows, {preview.filtered:,} filtered, {len(preview.quarantine):,} quarantined"
    lines = [f"{preview.job}/{preview.partition}: {counts}"]
    lines += [f"warning: {warning}" for warning in preview.warnings]
    parts = [f"<p>{_escaped(line)}</p>" for line in lines]
    if len(preview.left_out):
        parts.append(f"<p>Not published:</p>{_table(preview.left_out)}")
    parts += [_table(table) for table in (preview.table, preview.quarantine) if len(table)]
    times = pa.table({"stage": list(preview.seconds), "seconds": list(preview.seconds.values())})
    return "\n".join([*parts, _table(times)])


def as_page(title: str, table: pa.Table) -> str:
    """Return a whole HTML document with all rows, and without a script.

    The first line of the title is the heading, and the other lines are a list.
    """
    heading, *lines = map(_escaped, title.split("\n"))
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{heading}</title><style>{STYLE}</style>'
    reasons = "".join(f"<li>{line}</li>" for line in lines)
    return f"{head}<h1>{heading}</h1><ul>{reasons}</ul>{_table(table, len(table))}</html>\n"


def _table(table: pa.Table, most: int = ROWS_SHOWN) -> str:
    head = "".join(f"<th>{_escaped(name)}</th>" for name in table.column_names)
    columns = list(map(preview_cells.values, table[:most].columns))
    rows = []
    for row in zip(*columns, strict=True):
        cells = "".join(f"<td>{cell(value)}</td>" for value in row)
        rows.append(f"<tr>{cells}</tr>")
    more = f"<p>and {len(table) - most:,} more rows</p>" if len(table) > most else ""
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>{more}"


def cell(value: Any) -> str:
    """Return a value as HTML: escaped text, or a small picture."""
    text = preview_cells.text_of(value)
    image = preview_cells.pixels(value)
    if image is None:
        return _escaped(text)
    return f'<img src="data:image/png;base64,{picture(image, PICTURE_PIXELS)}" alt="{_escaped(text)}">'


def _escaped(text: str) -> str:
    line = printable(masked(text[: 4 * TEXT_SHOWN]))  # masked first: half a secret has no form
    return html.escape(line if len(text) <= TEXT_SHOWN else f"{line[: TEXT_SHOWN - 1]}…")
