"""What a person at the terminal sees: bars while a run streams, and the receipt in a few lines."""

import contextlib
import contextvars
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from prefect.client.orchestration import get_client
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from flows.attempt import place_of
from flows.backfill_plan import Step, summary
from flows.doctor import Finding, counts
from flows.job import Job
from flows.ledger import Entry
from tasks.artifacts import artifact_key
from tasks.errors import STREAM_STAGES
from tasks.run_directory import now

SECONDS_BETWEEN = 1.0


@contextlib.contextmanager
def progress_bars(job_name: str, stages: Sequence[str] = STREAM_STAGES) -> Iterator[None]:
    """Shows the run's progress artifacts as bars on stderr, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    stop, since = threading.Event(), now()
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {stage: progress.add_task(stage, total=100) for stage in stages}
        here = contextvars.copy_context()  # a thread has no context of its own, and with it another Prefect server
        thread = threading.Thread(target=here.run, args=(_follow, job_name, since, progress, bars, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _follow(job_name: str, since: str, progress: Progress, bars: dict[str, Any], stop: threading.Event) -> None:
    with get_client(sync_client=True) as client:
        while not stop.wait(SECONDS_BETWEEN):
            with contextlib.suppress(Exception):  # a bar must never cost the run
                for stage, bar in bars.items():
                    found = client.request(
                        "POST",
                        "/artifacts/latest/filter",
                        json={
                            "artifacts": {"key": {"any_": [artifact_key(job_name, f"progress-{stage}")]}},
                            "limit": 1,
                        },
                    ).json()
                    if found and found[0]["updated"] >= since:
                        progress.update(bar, completed=float(found[0]["data"]), description=found[0]["description"])


def show_receipt(receipt: dict[str, Any], job: Job) -> None:
    """A receipt in a few lines, on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    place = place_of(job, bool(receipt.get("limit_rows")))
    console.print(
        f"[bold]{receipt['job']}/{receipt['partition']}[/bold] {receipt['status']} at {receipt['finished_at']}"
    )
    console.print(
        f"  rows: {receipt['rows_in']:,} in, {receipt['rows_out']:,} out, {receipt['rows_filtered']:,} filtered, "
        f"{receipt['rows_quarantined']:,} quarantined, {receipt['rows_resumed']:,} resumed"
    )
    console.print(f"  time: {receipt['seconds']:,.1f} s, {receipt['rows_per_second']:,.1f} rows/s")
    for warning in receipt.get("warnings", []):
        console.print(f"  warning: {warning}", markup=False)
    for file in receipt["files"][:3]:
        console.print(f"  file: {place / file}", markup=False)
    if len(receipt["files"]) > 3:
        console.print(f"  and {len(receipt['files']) - 3} more files")


def show_matches(found: dict[str, Any]) -> None:
    """What a search found, as a table on stdout: scores, names, and what else tells a row from others."""
    console = Console(highlight=False, soft_wrap=False)
    known = list(dict.fromkeys(name for match in found["matches"] for name in match))
    hidden = {"score", "row_id"} | ({"partition"} if found["partitions"] == ["all"] else set())
    names = [name for name in known if name not in hidden]
    table = Table(Column("score", justify="right"), "row_id", *map(escape, names))
    for match in found["matches"]:
        cells = (match["row_id"], *["" if match.get(name) is None else str(match[name]) for name in names])
        table.add_row(f"{match['score']:.4f}", *[escape(text) for text in cells])
    if console.measure(table, options=console.options.update(max_width=100_000)).maximum <= console.width:
        console.print(table)
    else:
        _show_apart(console, found["matches"], names)
    for one in found["skipped"]:
        console.print(f"left out: {one['partition']}: {one['why']}", markup=False)
    rows, time = f"{found['rows']:,} rows of {len(found['partitions'])} partitions", f"{found['seconds']:.1f} s"
    if found["exact"]:
        without = f"{found['rows_without_embedding']:,} without an embedding"
        console.print(f"{found['job']}: compared with {rows} in {time}; {without}", markup=False, soft_wrap=True)
    else:
        console.print(
            f"{found['job']}: asked the index of {rows}, {time}; --exact compares with all",
            markup=False,
            soft_wrap=True,
        )
    if found["sheet"]:
        console.print(f"picture sheet: {found['sheet']}", markup=False, soft_wrap=True)


def _show_apart(console: Console, matches: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Each match in lines of its own, where a table would fold texts into columns of some characters."""
    for match in matches:
        console.print(f"{match['score']:.4f}  {match['row_id']}", markup=False, soft_wrap=True)
        for name in names:
            if match.get(name) is not None:
                console.print(Padding(Text(f"{name}: {match[name]}"), (0, 0, 0, 8), expand=False))


def show_steps(job: Job, steps: Sequence[Step]) -> None:
    """What a backfill would do, as a table on stdout, and how long that would take."""
    console = Console(highlight=False)
    table = Table("partition", "status", "why", Column("rows, about", justify="right"), Column("s", justify="right"))
    for step in steps:
        rows, seconds = (f"{value:,.0f}" if value is not None else "?" for value in (step.rows, step.seconds))
        table.add_row(step.partition, step.entry.status, ", ".join(step.why), rows, seconds)
    if steps:
        console.print(table)
    console.print(f"{job.name}: would run {summary(steps)}", markup=False)


def show_outcomes(job: Job, entries: Sequence[Entry]) -> None:
    """What became of a backfill's partitions, as a table on stdout."""
    console = Console(highlight=False)
    table = Table("partition", "status", Column("rows out", justify="right"), Column("s", justify="right"), "why")
    for entry in entries:
        receipt = entry.receipt or {}
        numbers = (f"{receipt.get('rows_out', 0):,}", f"{receipt.get('seconds', 0):,.0f}") if receipt else ("", "")
        table.add_row(entry.partition, entry.status, *numbers, ", ".join(entry.why))
    if entries:
        console.print(table)
    done = sum(entry.status == "published" for entry in entries)
    console.print(f"{job.name}: {done} of {len(entries)} partitions published", markup=False)


def show_cleaning(report: dict[str, Any]) -> None:
    """What `overnight clean` removed or would remove, as a table on stdout."""
    console = Console(highlight=False)
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


def show_findings(findings: Sequence[Finding]) -> None:
    """A line a finding, and below it what to do, on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "wrong": "red"}
    for finding in findings:
        console.print(f"[{colours[finding.level]}]{finding.level:<8}[/] {escape(f'{finding.what}: {finding.found}')}")
        if finding.advice and finding.level != "ok":
            console.print(f"         -> {finding.advice}", markup=False)
    console.print(", ".join(f"{count} {level}" for level, count in counts(findings).items()))
