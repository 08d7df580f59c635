"""Progress of a run: bars on a terminal, lines otherwise, and the warnings of its log."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from overnight.cli.console import VisibleConsole
from overnight.flows.runs.background import in_background
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

Show = Callable[[str, float, str], None]  # of a stage, its percent and its text


@contextlib.contextmanager
def progress(
    job_name: str, flow_run_id: UUID, stages: Sequence[str] = STREAM_STAGES, verbose: bool = False
) -> Iterator[None]:
    """Show the progress of a flow run on stderr: a line when a task begins, and the progress artifacts.

    On a terminal the artifacts are bars. Otherwise they are a line every ten seconds with the seconds since the start.
    Warnings of the run are shown. verbose: the rest of its log is shown too, with the output of user code.
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
    """Show the log of this process's flow runs above the bars: the warnings, or all records."""
    began = time.monotonic()

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if verbose or record.levelno == logging.WARNING:  # an error ends the run, and the command prints it
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
    """Yield a function that draws a stage's bar, or None without a terminal."""
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
            with contextlib.suppress(Exception):  # a failed display must not fail the run
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
    """Return the percent and the text of each stage with a progress artifact of this run."""
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
