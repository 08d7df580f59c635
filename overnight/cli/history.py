"""`overnight history`: a line for each partition of a job, its regressions, and what changed with them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_option, print_result

if TYPE_CHECKING:
    from overnight.flows.history.history import History

NEWEST = 30


@click.command(epilog=f"{EXIT_STATUS} Regressions and failed partitions do not change it.")
@job_argument
@click.option("--partition", metavar="A..B", help="The first and the last day, such as 2026-11-01..2026-11-19.")
@click.option(
    "--last", metavar="N", type=click.IntRange(min=1), help=f"The newest partitions; default: {NEWEST}, or all of A..B."
)
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Also write a page with a calendar.")
@json_option
def history(job_path: Path, partition: str | None, last: int | None, html: Path | None, as_json: bool) -> None:
    """Show what each partition of a job took, and which one is worse.

    A partition is worse if it is slower, costlier, more quarantined, less in agreement with the labels, or has drifted.
    What changed since the publish before is shown with it: settings, models, code, versions and inputs.
    """
    from overnight.cli.history_view import show_history
    from overnight.flows.history.history import read_history
    from overnight.flows.job.loading import load_job

    with exit_on_error():
        job = load_job(job_path)
        first, end = _range(partition, job.partitions is not None) if partition else ("", "")
        newest = last or (None if partition else NEWEST)
        result = read_history(job.state_location, job.name, first, end, newest)
        if html:
            _write_page(result, html)
        print_result(result.lines, as_json, lambda: show_history(result))


def _range(text: str, are_names: bool) -> tuple[str, str]:
    """Return the first and the last partition. A last day has all of its hours and values: `~` is behind them."""
    first, dots, last = text.partition("..")
    if are_names:
        return first, f"{last if dots else first}~"
    from overnight.flows.schedule.partitions import check_range, parse_day

    start, end = parse_day(first), parse_day(last if dots else first)
    check_range(start, end)
    return start.isoformat(), end.isoformat()


def _write_page(result: "History", file: Path) -> None:
    """Write the page of a history. It has links to the reports if they are on this machine."""
    from overnight.flows.history.pages import job_page
    from overnight.tasks.storage.filesystems import is_local

    filesystem, state = result.state.open_filesystem()
    reports = quote(os.path.relpath(state, file.resolve().parent)) if is_local(filesystem) else None
    file.write_text(job_page(result, reports), encoding="utf-8", errors="replace")
    click.echo(f"history: {file}", err=True)
