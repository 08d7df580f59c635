"""Small pages for notebooks: a receipt with its first rows, and the statuses of partitions. All texts are escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from overnight.flows import preview_cells
from overnight.flows.preview_html import cell
from overnight.tasks.config.masking import printable

if TYPE_CHECKING:
    from overnight.api.receipt import Receipt
    from overnight.flows.ledger.partition_status import PartitionStatus

ROWS, COLUMNS, CHARACTERS, LISTED = 5, 12, 80, 400
COUNTS = ("rows_in", "rows_out", "rows_filtered", "rows_quarantined", "rows_resumed", "seconds", "rows_per_second")


def receipt_as_html(receipt: "Receipt") -> str:
    """Return HTML with a receipt's counts, its warnings and its first rows. Images are thumbnails."""
    title = f"<b>{_text(receipt['job'])}/{_text(receipt['partition'])}</b> {_text(receipt['status'])}"
    counts = table_as_html(COUNTS, [[f"{receipt[name]:,}" for name in COUNTS]])
    warnings = "".join(f"<p>warning: {_text(warning)}</p>" for warning in receipt.get("warnings", []))
    try:
        rows = arrow_as_html(receipt.head(ROWS))
    except Exception as error:  # the counts are of use without the rows
        rows = f"<p>The rows cannot be shown: {_text(error)}</p>"
    return f"<div>{title}{counts}{warnings}{rows}</div>"


def statuses_as_html(entries: "Sequence[PartitionStatus]", reports: str = "") -> str:
    """Return HTML with a line for each of the newest partitions, newest first, and the number of the others.

    `reports` is the path of their reports.
    """
    lines = []
    for entry in list(reversed(entries))[:LISTED]:
        counts = ["", "", ""]
        if entry.receipt:
            counts = [f"{entry.receipt[name]:,}" for name in ("rows_out", "rows_quarantined", "seconds")]
        lines.append([_text(entry.partition), _text(entry.status), *counts, _text("; ".join(entry.why))])
    table = table_as_html(("partition", "status", "rows out", "quarantined", "seconds", "why"), lines)
    if len(entries) > LISTED:
        table += f"<p>and {len(entries) - LISTED:,} more</p>"
    if reports:
        table += f"<p>reports: <code>{_text(reports)}</code></p>"
    return f"<div>{table}</div>"


def arrow_as_html(table: pa.Table) -> str:
    """Return an HTML table of all rows and the first `COLUMNS` columns, with the names of the other columns."""
    names, more_names = table.column_names[:COLUMNS], table.column_names[COLUMNS:]
    columns = [map(cell, preview_cells.values(table[name])) for name in names]
    html = table_as_html(map(_text, names), zip(*columns, strict=True))
    if more_names:
        html += f"<p>and the columns {_text(', '.join(more_names))}</p>"
    return html


def table_as_html(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table. The header and the cells must be HTML already."""
    head = "".join(f"<th>{name}</th>" for name in header)
    body = ""
    for row in rows:
        body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    text = printable(str(value))
    if len(text) > CHARACTERS:
        text = f"{text[: CHARACTERS - 1]}…"
    return escape(text)
