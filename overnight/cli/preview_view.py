"""Print the output of `overnight preview`: the rows, the rows that failed, the counts and the seconds."""

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from overnight.api.console import VisibleConsole
from overnight.cli.rows_view import show_pictures, show_rows
from overnight.flows.preview import Preview


def show_preview(preview: Preview) -> None:
    """Print a preview on stdout: the rows with their pictures, the failed rows, the counts and the seconds."""
    console = VisibleConsole(highlight=False)
    if len(preview):
        show_rows(console, preview.table)
        show_pictures(console, (preview.left_out, preview.table))
    show_rest(preview, console)


def show_rest(preview: Preview, console: Console) -> None:
    """Print everything of a preview except its rows: the failed rows, the counts, the warnings and the seconds."""
    for row in preview.quarantine.to_pylist():
        reason = f"{row['error_type']}: {row['error_message']}"
        console.print(Text(f"{row['row_id']}  quarantined in {row['stage']}: {reason}", "red", overflow="fold"))
    counts = f"{len(preview):,} rows, {preview.filtered:,} filtered, {len(preview.quarantine):,} quarantined"
    console.print(f"[bold]{preview.job}/{preview.partition}[/bold]: {counts}")
    if left_out := preview.left_out.column_names[1:]:
        console.print(f"  columns left out: {', '.join(left_out)} (see sink.keep_columns)", markup=False)
    for warning in preview.warnings:
        console.print(f"  warning: {warning}", markup=False)
    times = Table(Column("stage"), Column("seconds", justify="right"), box=None, pad_edge=False)
    for stage, seconds in preview.seconds.items():
        times.add_row(Text(stage), f"{seconds:.3f}")
    console.print("", times, sep="\n")
