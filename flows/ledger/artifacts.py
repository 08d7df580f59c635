"""Show a job's partitions in the Prefect UI: the table `<job>-partitions` and the calendar `<job>-calendar`.

These artifacts show the ledger at the end of a run or a backfill. No code reads them.
"""

import contextlib
import json
from calendar import monthcalendar as weeks_of
from collections.abc import Iterator, Sequence
from datetime import date
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate

from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.ledger import calendar_view
from overnight.flows.ledger.partition_status import PartitionStatus, Status, read_ledger
from overnight.tasks.artifacts import artifact_key, cell, dispensable
from overnight.tasks.errors import ServiceUnavailable, first_line

LISTED, IN_CALENDAR, NAMED = 62, 366, 5  # the newest partitions that each list shows
SYMBOLS: dict[Status, str] = {"published": "✅", "missing": "⬜", "failed": "❌", "stale": "🟡", "running": "🔵"}


@contextlib.contextmanager
def partitions_shown(file: JobFile, backfill: str = "") -> Iterator[None]:
    """Show the job's partitions in the Prefect UI after the body, also if the body fails.

    `backfill` is the id of the backfill to which the run belongs, or an empty string. Skip this for a run of a
    backfill, because the backfill shows the partitions itself, once. Also skip this if storage is away, or if the body
    was cancelled, because a cancelled run must not wait.

    The statuses follow from the settings of the job file, because with one run's `--set` all other partitions would be
    stale.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, ServiceUnavailable):
            _show(file, backfill)
        raise
    _show(file, backfill)


@dispensable()
def _show(file: JobFile, backfill: str) -> None:
    if not backfill:
        show_partitions(file.job())


@dispensable()
def show_partitions(
    job: Job, start: date | None = None, end: date | None = None, flow_run_id: UUID | None = None
) -> None:
    """Write the table and the calendar of the newest partitions from `start` to `end`, or of all dates, as artifacts.

    The page of the flow run `flow_run_id` shows both. Without an id no page shows them, so that a run's page begins
    with its own summary. An error becomes a warning in the log.
    """
    entries = read_ledger(job, start, end, newest=IN_CALENDAR)
    rows = [_row(entry) for entry in reversed(entries[-LISTED:])]
    newest = (
        f"Partitions of {job.name}, the newest {LISTED} at most" if job.is_dated else f"The partition of {job.name}"
    )
    with get_client(sync_client=True) as client:
        for what, kind, description, data in (
            ("partitions", "table", newest, json.dumps(rows)),
            ("calendar", "markdown", f"Partitions of {job.name}", calendar_markdown(entries)),
        ):
            key = artifact_key(job.name, what)
            client.create_artifact(
                ArtifactCreate(key=key, type=kind, description=description, data=data, flow_run_id=flow_run_id)
            )


def calendar_markdown(entries: Sequence[PartitionStatus]) -> str:
    """Return Markdown: counts by status, the unpublished partitions, and a table for each month, newest first.

    A line of a table is a week, because Prefect's page has room for only 18 days side by side.
    """
    lines = [
        ", ".join(f"{SYMBOLS[status]} {number:,} {status}" for status, number in calendar_view.count(entries).items())
    ]
    stretches = calendar_view.unpublished(entries)
    lines += ["", *map(_line, stretches[:NAMED])]
    if left := sum(len(stretch.entries) for stretch in stretches[NAMED:]):
        lines.append(f"- and {left:,} more")
    if entries and entries[0].partition != "all":
        for line in reversed(calendar_view.months(entries)):
            if len(line) > 1:
                lines += ["", f"**{line[0].name} to {line[-1].name}**: all days missing"]
            else:
                lines += ["", *_month(line[0])]
    return "\n".join(lines)


def _line(stretch: calendar_view.PartitionRange) -> str:
    entry = stretch.entries[-1]
    since = f" since {calendar_view.minute(entry.since)} UTC" if entry.since else ""
    why = f": {cell('; '.join(map(first_line, entry.why)))}" if entry.why else ""
    return f"- {SYMBOLS[entry.status]} **{stretch.name}** {entry.status}{since}{why}"


def _month(month: calendar_view.Month) -> list[str]:
    year, number = (int(part) for part in month.name.split("-"))
    lines = [f"| {month.name} | Mon | Tue | Wed | Thu | Fri | Sat | Sun |", f"| --- |{' :---: |' * 7}"]
    for week in weeks_of(year, number):
        days = (f"{SYMBOLS[month.days[day]]} {day}" if day in month.days else str(day or "") for day in week)
        lines.append(f"| | {' | '.join(days)} |")
    return lines


def _row(entry: PartitionStatus) -> dict[str, str | int]:
    receipt = entry.receipt or {}
    return {
        "partition": entry.partition,
        "status": f"{SYMBOLS[entry.status]} {entry.status}",
        "rows in": receipt.get("rows_in", ""),
        "rows out": receipt.get("rows_out", ""),
        "quarantined": receipt.get("rows_quarantined", ""),
        "published at (UTC)": calendar_view.minute(receipt.get("finished_at")),
        "why": "; ".join(map(first_line, entry.why)),  # each line of a text makes its row higher
    }
