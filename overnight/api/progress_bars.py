"""Progress of a run: bars on a terminal and in a notebook, lines otherwise, and the warnings of its log."""

import contextlib
import importlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from overnight.api.console import VisibleConsole
from overnight.flows.runs.run_log import in_background
from overnight.tasks.artifacts import artifact_key
from overnight.tasks.errors import STREAM_STAGES
from overnight.tasks.state.run import now

SECONDS_BETWEEN = 1.0
SECONDS_BETWEEN_LOOKS = 2.0  # without a terminal: each look costs the server and this process about 10 ms
SECONDS_BETWEEN_LINES = 10.0
# The work of each task, printed when the task begins.
TASKS = {
    "ingest": "listing the source",
    "shuffle": "ordering the listed files",
    "preprocess": "trying the steps on a few rows",
    "infer": "loading the models and running them",
    "write": "checking the rows and publishing them",
}

Show = Callable[[str, float | None, str], None]  # takes a stage, its percentage, None if unknown, and its text


@contextlib.contextmanager
def progress(
    job_name: str, flow_run_id: UUID, stages: Sequence[str] = STREAM_STAGES, verbose: bool = False
) -> Iterator[None]:
    """Show the progress of a flow run on stderr while the body runs. `stages` are the stages to show.

    A line appears when a task begins. On a terminal and in a notebook, each stage has a bar. Elsewhere a line every ten
    seconds has the rows of each stage, after the seconds since the start. Warnings of the run are shown. If
    `verbose`, the rest of its log is shown too, with the output of user code.
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
    """Show the log of this process's flow runs above the bars: the warnings and a backfill's lines, or all records."""
    began = time.monotonic()

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_shown = getattr(record, "is_shown", False) or record.levelno == logging.WARNING
            if verbose or is_shown:  # an error ends the run, and the command prints it
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
    """Yield a function that draws a stage's bar, or None without a terminal and a notebook."""
    if console.is_jupyter:
        with _bars_of_notebook(stages) as show:
            yield show
        return
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as drawn:
        bars = {stage: drawn.add_task(stage, total=100) for stage in stages}

        def show(stage: str, percent: float | None, text: str) -> None:
            # rich keeps a total if it gets None, and draws a moving bar without one
            drawn.tasks[stages.index(stage)].total = None if percent is None else 100
            drawn.update(bars[stage], completed=percent or 0.0, description=text)

        yield show


@contextlib.contextmanager
def _bars_of_notebook(stages: Sequence[str]) -> Iterator[Show]:
    """Yield a function that draws a stage's bar in the output of the cell. At the end the bars go."""
    display: Any = importlib.import_module("IPython.display")
    bars: dict[str, tuple[float | None, str]] = dict.fromkeys(stages, (0.0, ""))
    drawn = display.display(display.HTML(_as_html(bars)), display_id=True)

    def show(stage: str, percent: float | None, text: str) -> None:
        bars[stage] = (percent, text)
        drawn.update(display.HTML(_as_html(bars)))

    try:
        yield show
    finally:
        drawn.update(display.HTML(""))


def _as_html(bars: Mapping[str, tuple[float | None, str]]) -> str:
    lines = []
    for stage, (percent, text) in bars.items():
        value = "" if percent is None else f' value="{percent:.0f}"'
        lines.append(f'<div><progress max="100"{value}></progress> {escape(text or stage)}</div>')
    return "".join(lines)


def _as_line(progress: Mapping[str, tuple[float | None, str]]) -> str:
    """Return the rows of each stage, with the percentage if it is known."""
    return ", ".join(text if percent is None else f"{text} ({percent:.0f}%)" for percent, text in progress.values())


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
    keys = [artifact_key(job_name, what) for what in ("progress", "progress-backfill")]
    with get_client(sync_client=True) as client:
        while not stop.wait(SECONDS_BETWEEN if show else SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(Exception):  # a failed display must not fail the run
                every = _progress(client, keys, since)
                found = {stage: every[stage] for stage in stages if stage in every}
                if show:
                    for stage in stages:
                        show(stage, *found.get(stage, (0.0, stage)))
                line = ""
                if (begun := _running_task(client, flow_run_id)) not in ("", task):
                    task, line = begun, f"{begun}: {TASKS[begun]}"
                elif not show and time.monotonic() - said_at >= SECONDS_BETWEEN_LINES:
                    line = _as_line(found) or (f"{task}: {TASKS[task]}" if task else "waiting for the first task")
                if line:
                    said_at = time.monotonic()
                    console.print(f"{said_at - began:4.0f} s  {line}", markup=False)


def _progress(client: SyncPrefectClient, keys: Sequence[str], since: str) -> dict[str, tuple[float | None, str]]:
    """Return the percent and the text of each stage, from the progress artifacts of runs that have not ended.

    A run's artifact has the percent of each stage in its metadata. A backfill's has no stages.
    """
    asked = ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(any_=list(keys)))
    begun, found = datetime.fromisoformat(since), dict[str, tuple[float | None, str]]()
    for one in client.read_latest_artifacts(artifact_filter=asked, limit=len(keys)):
        if one.updated and one.updated >= begun and not _has_ended(client, one.flow_run_id):
            shares = one.metadata_ or {"backfill": str(one.data)}
            texts = str(one.description).split(" · ")
            for (stage, share), text in zip(shares.items(), texts, strict=True):
                found[stage] = (float(share) if share else None, text)
    return found


def _has_ended(client: SyncPrefectClient, flow_run_id: UUID | None) -> bool:
    """Return True if the flow run has ended, as the run of a backfill's partition before the current one."""
    state = client.read_flow_run(flow_run_id).state if flow_run_id else None
    return state is not None and state.is_final()


def _running_task(client: SyncPrefectClient, flow_run_id: UUID) -> str:
    """Return the name of the task that the flow run runs now, or an empty string."""
    asked = {
        "flow_runs": {"id": {"any_": [str(flow_run_id)]}},
        "task_runs": {"state": {"type": {"any_": ["RUNNING"]}}},
        "sort": "EXPECTED_START_TIME_DESC",
        "limit": 1,
    }
    found = client.request("POST", "/task_runs/filter", json=asked).json()
    name = re.match(r"[a-z]*", str(found[0]["name"])) if found else None  # such as `infer: read, prepare, infer, stage`
    return name[0] if name and name[0] in TASKS else ""
