"""`overnight clean`: show or remove old generations, receipts and staged work."""

from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table

from overnight.api.console import VisibleConsole
from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_option, print_result


@click.command(epilog=EXIT_STATUS)
@job_argument
@click.option(
    "--keep-receipts",
    metavar="N",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="The number of newest receipts to keep for each partition.",
)
@click.option(
    "--older-than",
    metavar="DAYS",
    type=click.IntRange(min=0),
    default=None,
    help="Also include resumable staged work whose last attempt is at least DAYS days old.",
)
@click.option("--yes", is_flag=True, help="Remove the files. Without --yes, the command only lists them.")
@json_option
def clean(job_path: Path, keep_receipts: int, older_than: int | None, yes: bool, as_json: bool) -> None:
    """List or remove files that no run and no reader needs.

    These are old generations and receipts, orphaned staged work, and samples of --limit-rows.
    """
    from overnight.flows.job.loading import load_job

    with exit_on_error():
        job = load_job(job_path)
        from overnight.flows.ledger.garbage_collection import collect_garbage

        report = collect_garbage(job, keep_receipts, older_than, dry_run=not yes)
    print_result(report, as_json, lambda: show_cleaning(report))


def show_cleaning(report: dict[str, Any]) -> None:
    """Print the files that `overnight clean` removed, or would remove, as a table on stdout."""
    console = VisibleConsole(highlight=False)
    key, verb = "removed", "removed"
    if report["dry_run"]:
        key, verb = "removable", "would be removed; add --yes to remove them"
    rows = report[key]
    numbers = [Column(name, justify="right") for name in ("files", "bytes")]
    table = Table("partition", "what", "why", *numbers)
    for row in rows:
        table.add_row(row["partition"], row["what"], row["why"], f"{row['files']:,}", f"{row['bytes']:,}")
    if rows:
        console.print(table)
    for partition in report["skipped"]:
        console.print(f"skipped: {partition['partition']}: {partition['why']}", markup=False)
    console.print(f"{report['job']}: {report['files']:,} files, {report['bytes']:,} bytes {verb}", markup=False)
