"""What a person at the terminal sees: how far a run is, and the receipt in a few lines."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from overnight.cli.console import VisibleConsole
from overnight.flows.backfill_plan import Step, summary
from overnight.flows.doctor.examine import Finding, counts
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import Entry
from overnight.flows.runs.attempt import place_of
from overnight.flows.runs.background import in_background
from overnight.tasks.artifacts import artifact_key
from overnight.tasks.errors import STREAM_STAGES
from overnight.tasks.state.run import now
from overnight.tasks.storage import skipped_files

SECONDS_BETWEEN = 1.0
SECONDS_BETWEEN_LOOKS = 2.0  # without a terminal: each look costs the server and this process some 10 ms
SECONDS_BETWEEN_LINES = 10.0
# What each task does, for the person who waits.
TASKS = {
    "ingest": "listing the source",
    "shuffle": "ordering what was listed",
    "preprocess": "trying the steps on a few rows",
    "infer": "loading the models and running them",
    "write": "checking the rows and publishing them",
}

Show = Callable[[str, float, str], None]  # of a stage, its percent and its text


@contextlib.contextmanager
def progress(
    job_name: str, flow_run_id: UUID, stages: Sequence[str] = STREAM_STAGES, verbose: bool = False
) -> Iterator[None]:
    """Show on stderr how far a flow run is: a line when a task begins, and the progress artifacts.

    The artifacts are bars on a terminal. Elsewhere they are a line every ten seconds, and no line repeats the last one
    without its seconds. Warnings of the run are shown. verbose: so is the rest of its log, with what user code prints.
    """
    console = VisibleConsole(stderr=True, soft_wrap=True, highlight=False)
    with (
        _bars(console, stages) as show,
        _log_shown(console, verbose),
        in_background(_follow, job_name, flow_run_id, now(), stages, show, console),
    ):
        yield


@contextlib.contextmanager
def _log_shown(console: Console, verbose: bool) -> Iterator[None]:
    """Show what flow runs of this process log, above the bars: warnings, or all of it."""
    began = time.monotonic()

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if verbose or record.levelno == logging.WARNING:  # an error ends the run, and is shown then
                style = "yellow" if record.levelno == logging.WARNING else None
                line = f"{time.monotonic() - began:4.0f} s  {self.format(record)}"
                console.print(line, markup=False, style=style)

    shown, log = Shown(), logging.getLogger("prefect.flow_runs")
    log.addHandler(shown)
    try:
        yield
    finally:
        log.removeHandler(shown)


@contextlib.contextmanager
def _bars(console: Console, stages: Sequence[str]) -> Iterator[Show | None]:
    """Return what draws a stage's bar. It is None where there is no terminal."""
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as drawn:
        bars = {stage: drawn.add_task(stage, total=100) for stage in stages}
        yield lambda stage, percent, text: drawn.update(bars[stage], completed=percent, description=text)


def _follow(
    job_name: str,
    flow_run_id: UUID,
    since: str,
    stages: Sequence[str],
    show: Show | None,
    console: Console,
    stop: threading.Event,
) -> None:
    began, said_at, task = time.monotonic(), time.monotonic(), ""
    keys = {artifact_key(job_name, f"progress-{stage}"): stage for stage in stages}
    with get_client(sync_client=True) as client:
        while not stop.wait(SECONDS_BETWEEN if show else SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(Exception):  # what is shown must never cost the run
                found = _progress(client, keys, since)
                if show:
                    for stage, (percent, text) in found.items():
                        show(stage, percent, text)
                line = ""
                if (begun := _running_task(client, flow_run_id)) not in ("", task):
                    task, line = begun, f"{begun}: {TASKS[begun]}"
                elif not show and time.monotonic() - said_at >= SECONDS_BETWEEN_LINES:
                    line = ", ".join(f"{stage} {percent:.0f}%" for stage, (percent, _) in found.items()) or (
                        f"{task}: {TASKS[task]}" if task else "waiting for the first task"
                    )
                if line:
                    said_at = time.monotonic()
                    console.print(f"{said_at - began:4.0f} s  {line}", markup=False)


def _progress(client: SyncPrefectClient, keys: Mapping[str, str], since: str) -> dict[str, tuple[float, str]]:
    """Return the percent and the text of each stage that the run has an artifact of."""
    asked = ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(any_=list(keys)))
    found = {one.key: one for one in client.read_latest_artifacts(artifact_filter=asked, limit=len(keys))}
    begun = datetime.fromisoformat(since)
    return {
        stage: (float(str(one.data)), str(one.description))
        for key, stage in keys.items()
        if (one := found.get(key)) and one.updated and one.updated >= begun
    }


def _running_task(client: SyncPrefectClient, flow_run_id: UUID) -> str:
    """Return the name of the task that the flow run runs now, or an empty string."""
    asked = {
        "flow_runs": {"id": {"any_": [str(flow_run_id)]}},
        "task_runs": {"state": {"type": {"any_": ["RUNNING"]}}},
        "sort": "EXPECTED_START_TIME_DESC",
        "limit": 1,
    }
    found = client.request("POST", "/task_runs/filter", json=asked).json()
    name = str(found[0]["name"]).partition("-")[0] if found else ""
    return name if name in TASKS else ""


def show_receipt(receipt: dict[str, Any], job: Job) -> None:
    """A receipt in a few lines, on stdout."""
    console = VisibleConsole(highlight=False, soft_wrap=True)
    place = place_of(job, bool(receipt.get("limit_rows")))
    console.print(
        f"[bold]{receipt['job']}/{receipt['partition']}[/bold] {receipt['status']} at {receipt['finished_at']}"
    )
    console.print(
        f"  rows: {receipt['rows_in']:,} in, {receipt['rows_out']:,} out, {receipt['rows_filtered']:,} filtered, "
        f"{receipt['rows_quarantined']:,} quarantined, {receipt['rows_resumed']:,} resumed"
    )
    console.print(f"  time: {receipt['seconds']:,.1f} s, {receipt['rows_per_second']:,.1f} rows/s")
    if passed := skipped_files.told(receipt.get("passed_over", {})):
        console.print(f"  passed over: {passed}", markup=False)
    if left_out := receipt.get("left_out"):
        console.print(f"  columns left out: {', '.join(left_out)} (see sink.keep_columns)", markup=False)
    for warning in receipt.get("warnings", []):
        console.print(f"  warning: {warning}", markup=False)
    if receipt.get("logs"):
        console.print(f"  printed and logged: {receipt['logs']}", markup=False)
    for file in receipt["files"][:3]:
        console.print(f"  file: {place / file}", markup=False)
    if len(receipt["files"]) > 3:
        console.print(f"  and {len(receipt['files']) - 3} more files")


def show_matches(found: dict[str, Any]) -> None:
    """What a search found, as a table on stdout: scores, names, and what else tells a row from others."""
    console = VisibleConsole(highlight=False, soft_wrap=False)
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
    console = VisibleConsole(highlight=False)
    table = Table("partition", "status", "why", Column("rows, about", justify="right"), Column("s", justify="right"))
    for step in steps:
        rows, seconds = (f"{value:,.0f}" if value is not None else "?" for value in (step.rows, step.seconds))
        table.add_row(step.partition, step.entry.status, ", ".join(step.why), rows, seconds)
    if steps:
        console.print(table)
    console.print(f"{job.name}: would run {summary(steps)}", markup=False)


def show_outcomes(job: Job, entries: Sequence[Entry]) -> None:
    """What became of a backfill's partitions, as a table on stdout."""
    console = VisibleConsole(highlight=False)
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


def show_findings(findings: Sequence[Finding]) -> None:
    """A line a finding, and below it what to do, on stdout."""
    console = VisibleConsole(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "wrong": "red"}
    for finding in findings:
        console.print(f"[{colours[finding.level]}]{finding.level:<8}[/] {escape(f'{finding.what}: {finding.found}')}")
        if finding.advice and finding.level != "ok":
            console.print(f"         -> {finding.advice}", markup=False)
    console.print(", ".join(f"{count} {level}" for level, count in counts(findings).items()))
