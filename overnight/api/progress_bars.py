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

Share = tuple[float | None, str]  # the percentage of a stage, None if unknown, and its text
Show = Callable[[str, float | None, str], None]  # draws the bar of a stage


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
    log, handler = logging.getLogger("prefect.flow_runs"), _LogLines(console, verbose)
    with _bars(console, stages) as show:
        log.addHandler(handler)
        try:
            with in_background(_follow, job_name, flow_run_id, now(), stages, show, console):
                yield
        finally:
            log.removeHandler(handler)


class _LogLines(logging.Handler):
    """Print the log of this process's flow runs above the bars: the warnings and a backfill's lines, or all records."""

    def __init__(self, console: Console, verbose: bool) -> None:
        super().__init__()
        self._console, self._verbose, self._start = console, verbose, time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        is_warning = record.levelno == logging.WARNING
        # An error ends the run, and the command prints it.
        if self._verbose or is_warning or getattr(record, "is_shown", False):
            line = f"{time.monotonic() - self._start:4.0f} s  {self.format(record)}"
            self._console.print(line, markup=False, style="yellow" if is_warning else None)


@contextlib.contextmanager
def _bars(console: Console, stages: Sequence[str]) -> Iterator[Show | None]:
    """Yield a function that draws a stage's bar, or None without a terminal and a notebook."""
    if console.is_jupyter:
        with _bars_of_notebook(stages) as show_html:
            yield show_html
        return
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as display:
        bars = {stage: display.add_task(stage, total=100) for stage in stages}

        def show(stage: str, percent: float | None, text: str) -> None:
            # rich keeps a total if it gets None, and draws a moving bar without one
            display.tasks[stages.index(stage)].total = None if percent is None else 100
            display.update(bars[stage], completed=percent or 0.0, description=text)

        yield show


@contextlib.contextmanager
def _bars_of_notebook(stages: Sequence[str]) -> Iterator[Show]:
    """Yield a function that draws a stage's bar in the output of the cell. At the end the bars go."""
    display: Any = importlib.import_module("IPython.display")
    bars: dict[str, Share] = dict.fromkeys(stages, (0.0, ""))
    output = display.display(display.HTML(_as_html(bars)), display_id=True)

    def show(stage: str, percent: float | None, text: str) -> None:
        bars[stage] = (percent, text)
        output.update(display.HTML(_as_html(bars)))

    try:
        yield show
    finally:
        output.update(display.HTML(""))


def _as_html(bars: Mapping[str, Share]) -> str:
    lines = []
    for stage, (percent, text) in bars.items():
        value = "" if percent is None else f' value="{percent:.0f}"'
        lines.append(f'<div><progress max="100"{value}></progress> {escape(text or stage)}</div>')
    return "".join(lines)


def _as_line(shares: Mapping[str, Share]) -> str:
    """Return the rows of each stage, with the percentage if it is known."""
    return ", ".join(text if percent is None else f"{text} ({percent:.0f}%)" for percent, text in shares.values())


def _follow(
    job_name: str,
    flow_run_id: UUID,
    since: str,
    stages: Sequence[str],
    show: Show | None,
    console: Console,
    stop: threading.Event,
) -> None:
    start, line_time, task = time.monotonic(), time.monotonic(), ""
    keys = [artifact_key(job_name, "progress"), artifact_key(job_name, "progress-backfill")]
    with get_client(sync_client=True) as client:
        while not stop.wait(SECONDS_BETWEEN if show else SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(Exception):  # a failed display must not fail the run
                shares = _shares(client, keys, since)
                if show:
                    for stage in stages:
                        show(stage, *shares.get(stage, (0.0, stage)))
                line = ""
                if (current := _running_task(client, flow_run_id)) not in ("", task):
                    task, line = current, f"{current}: {TASKS[current]}"
                elif not show and time.monotonic() - line_time >= SECONDS_BETWEEN_LINES:
                    waiting = f"{task}: {TASKS[task]}" if task else "waiting for the first task"
                    line = _as_line({stage: shares[stage] for stage in stages if stage in shares}) or waiting
                if line:
                    line_time = time.monotonic()
                    console.print(f"{line_time - start:4.0f} s  {line}", markup=False)


def _shares(client: SyncPrefectClient, keys: list[str], since: str) -> dict[str, Share]:
    """Return the percent and the text of each stage, from the progress artifacts of runs that have not ended.

    A run's artifact has the percent of each stage in its metadata. A backfill's has no stages.
    """
    query = ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(any_=keys))
    start, shares = datetime.fromisoformat(since), dict[str, Share]()
    for artifact in client.read_latest_artifacts(artifact_filter=query, limit=len(keys)):
        if artifact.updated and artifact.updated >= start and not _has_ended(client, artifact.flow_run_id):
            percents = artifact.metadata_ or {"backfill": str(artifact.data)}
            texts = str(artifact.description).split(" · ")
            for (stage, percent), text in zip(percents.items(), texts, strict=True):
                shares[stage] = (float(percent) if percent else None, text)
    return shares


def _has_ended(client: SyncPrefectClient, flow_run_id: UUID | None) -> bool:
    """Return True if the flow run has ended, as the run of a backfill's partition before the current one."""
    state = client.read_flow_run(flow_run_id).state if flow_run_id else None
    return state is not None and state.is_final()


def _running_task(client: SyncPrefectClient, flow_run_id: UUID) -> str:
    """Return the name of the task that the flow run runs now, or an empty string."""
    query = {
        "flow_runs": {"id": {"any_": [str(flow_run_id)]}},
        "task_runs": {"state": {"type": {"any_": ["RUNNING"]}}},
        "sort": "EXPECTED_START_TIME_DESC",
        "limit": 1,
    }
    for task_run in client.request("POST", "/task_runs/filter", json=query).json():
        name = re.split("[^a-z]", str(task_run["name"]))[0]  # of `infer: read, prepare, infer, stage`
        return name if name in TASKS else ""
    return ""
