"""Show a job's partitions in the Prefect UI: the table `<job>-partitions` and the calendar `<job>-calendar`.

These artifacts show the ledger at the end of a run or a backfill. No code reads them.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from datetime import date
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate

from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.ledger import calendar_view
from overnight.flows.ledger.partition_status import PartitionStatus, Status, read_ledger
from overnight.tasks.artifacts import artifact_key, cell, create_listed, dispensable
from overnight.tasks.errors import ServiceUnavailable, first_line

LISTED, IN_CALENDAR, NAMED = 62, 366, 5  # the newest partitions that each list shows
# The only colours of Markdown. A letter beside each has the same meaning.
COLOURS: dict[Status, str] = {"published": "🟢", "missing": "⚪", "failed": "🔴", "stale": "🟡", "running": "🔵"}


@contextlib.contextmanager
def partitions_shown(file: JobFile, backfill: str = "") -> Iterator[None]:
    """Show the job's partitions in the Prefect UI after the body, also if the body fails.

    A backfill shows them itself. The job is that of the file: with a run's `--set` all others would be stale.
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
    """Write the table and the calendar as artifacts, which the page of the flow run shows if it is given."""
    entries = read_ledger(job, start, end, newest=IN_CALENDAR)
    title = f"Partitions of {job.name}, the newest {LISTED} at most" if job.is_dated else f"The partition of {job.name}"
    table = json.dumps(list(map(_row, reversed(entries[-LISTED:]))))
    with get_client(sync_client=True) as client:

        def create(name: str, kind: str, description: str, data: str) -> None:
            key = artifact_key(job.name, name)
            artifact = ArtifactCreate(key=key, type=kind, description=description, data=data, flow_run_id=flow_run_id)
            create_listed(client, artifact)

        create("partitions", "table", title, table)
        calendar = f"{calendar_markdown(entries)}\n\nReports: `{job.reports}`"
        create("calendar", "markdown", f"Partitions of {job.name}", calendar)


def calendar_markdown(entries: Sequence[PartitionStatus]) -> str:
    """Return Markdown: counts by status, the unpublished partitions, and a table for each month, newest first.

    A line of a table is a week, because Prefect's page has room for only 18 days side by side.
    """
    counts = calendar_view.count(entries)
    lines = [", ".join(f"{_mark(status)} {number:,} {status}" for status, number in counts.items())]
    stretches = calendar_view.unpublished(entries)
    lines += ["", *map(_line, stretches[:NAMED])]
    if excess := sum(len(stretch.entries) for stretch in stretches[NAMED:]):
        lines.append(f"- and {excess:,} more")
    if entries and entries[0].partition != "all":
        for months in reversed(calendar_view.months(entries)):
            if len(months) > 1:
                lines += ["", f"**{months[0].name} to {months[-1].name}**: all {months[0].unit.cell} missing"]
            else:
                lines += ["", *_month(months[0])]
    return "\n".join(lines)


def _line(stretch: calendar_view.PartitionRange) -> str:
    entry = stretch.entries[-1]
    since = f" since {calendar_view.minute(entry.since)} UTC" if entry.since else ""
    reasons = f": {cell('; '.join(map(first_line, entry.why)))}" if entry.why else ""
    return f"- {_mark(entry.status)} **{stretch.name}** {entry.status}{since}{reasons}"


def _month(month: calendar_view.Month) -> list[str]:
    is_of_days = month.unit is calendar_view.UNITS["day"]
    head = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] if is_of_days else [""] * len(month.weeks[0])
    lines = [f"| {month.name} | {' | '.join(head)} |", f"| --- |{' :---: |' * len(head)}"]
    for week in month.weeks:
        days = [_day(day, month.days.get(day)) for day in week]
        days = [text if is_of_days or day in month.days else "" for day, text in zip(week, days, strict=True)]
        lines.append(f"| | {' | '.join(days)} |")
    return lines


def _day(day: int, status: Status | None) -> str:
    """Return a day with the colour and the letter of its status; an empty text for a day of another month."""
    if status:
        return f"{day} {_mark(status)}"
    return str(day or "")


def _mark(status: Status) -> str:
    return f"{COLOURS[status]} {calendar_view.LETTERS[status]}"


def _row(entry: PartitionStatus) -> dict[str, str | int]:
    receipt = entry.receipt or {}
    return {
        "partition": entry.partition,
        "status": f"{_mark(entry.status)} {entry.status}",
        "rows in": receipt.get("rows_in", ""),
        "rows out": receipt.get("rows_out", ""),
        "quarantined": receipt.get("rows_quarantined", ""),
        "published at (UTC)": calendar_view.minute(receipt.get("finished_at")),
        "why": "; ".join(map(first_line, entry.why)),  # each line of a text makes its row higher
    }
