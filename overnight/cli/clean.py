"""`overnight clean`: old generations, receipts and staged work, shown or removed."""

from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table

from overnight.cli.command import exit_on_error, job_argument, json_option, print_result
from overnight.cli.console import VisibleConsole


@click.command()
@job_argument
@click.option("--keep-receipts", metavar="N", type=click.IntRange(min=1), default=30, show_default=True)
@click.option(
    "--older-than",
    metavar="DAYS",
    type=click.IntRange(min=0),
    default=None,
    help="Also staged work that a run could resume, if nothing was tried for so long.",
)
@click.option("--yes", is_flag=True, help="Remove it. Without, only show what would be removed.")
@json_option
def clean(job_path: Path, keep_receipts: int, older_than: int | None, yes: bool, as_json: bool) -> None:
    """Remove old generations and receipts, orphaned staging and samples; never what a run or a reader needs."""
    from overnight.flows.job.loading import load_job

    with exit_on_error():
        job = load_job(job_path)
        from overnight.flows.ledger.garbage_collection import collect_garbage

        report = collect_garbage(job, keep_receipts, older_than, dry_run=not yes)
    print_result(report, as_json, lambda: show_cleaning(report))


def show_cleaning(report: dict[str, Any]) -> None:
    """Print what `overnight clean` removed or would remove as a table on stdout."""
    console = VisibleConsole(highlight=False)
    rows = report["removable" if report["dry_run"] else "removed"]
    table = Table("partition", "what", "why", Column("files", justify="right"), Column("bytes", justify="right"))
    for row in rows:
        table.add_row(row["partition"], row["what"], row["why"], f"{row['files']:,}", f"{row['bytes']:,}")
    if rows:
        console.print(table)
    for skipped in report["skipped"]:
        console.print(f"left alone: {skipped['partition']}: {skipped['why']}", markup=False)
    done = "would be removed; --yes removes it" if report["dry_run"] else "removed"
    console.print(f"{report['job']}: {report['files']:,} files, {report['bytes']:,} bytes {done}", markup=False)
