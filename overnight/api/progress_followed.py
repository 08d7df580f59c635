"""Follow a flow run: its task that runs now and its progress, as the Prefect server has them, go to a screen."""

import contextlib
import re
import threading
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from prefect.client.schemas.objects import ArtifactCollection

from overnight.api.progress_screen import Screen, logged
from overnight.flows.runs.run_log import in_background
from overnight.tasks.artifacts import artifact_key
from overnight.tasks.engine.progress import parsed
from overnight.tasks.state.run import now

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_LOOKS_FOR_LINES = 2.0  # each look costs the server and this process about 10 ms
# The work of each task.
TASKS = {
    "ingest": "listing the source",
    "shuffle": "ordering the listed files",
    "preprocess": "trying the steps on a few rows",
    "infer": "loading the models and running them",
    "write": "checking the rows and publishing them",
}
RUNNING = "infer: running the stream"
BACKFILL = "running the partitions"


@contextlib.contextmanager
def following(screen: Screen, job_name: str, flow_run_id: UUID) -> Iterator[None]:
    """Show the progress of a flow run, and the warnings of its log, on the screen while the body runs it."""
    with logged(screen), in_background(_follow, screen, job_name, flow_run_id, now()):
        yield


def _follow(screen: Screen, job_name: str, flow_run_id: UUID, since: str, stop: threading.Event) -> None:
    seconds = SECONDS_BETWEEN_LOOKS if screen.is_live else SECONDS_BETWEEN_LOOKS_FOR_LINES
    keys = {artifact_key(job_name, "progress"), artifact_key(job_name, "progress-backfill")}
    start = datetime.fromisoformat(since)
    with get_client(sync_client=True) as client:
        while not stop.wait(seconds):
            with contextlib.suppress(Exception):  # a display that fails must not fail the run
                if screen.view.backfill:
                    screen.phase(BACKFILL)
                elif task := _running_task(client, flow_run_id):
                    screen.begin()
                    progress = screen.view.progress
                    is_running = task == "infer" and progress is not None and not progress.is_complete
                    screen.phase(RUNNING if is_running else f"{task}: {TASKS[task]}")
                query = ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(any_=sorted(keys)))
                for artifact in client.read_latest_artifacts(artifact_filter=query, limit=len(keys)):
                    if artifact.updated and artifact.updated >= start:
                        _show(screen, artifact)
            with contextlib.suppress(Exception):
                screen.tick()


def _show(screen: Screen, artifact: ArtifactCollection) -> None:
    facts = artifact.metadata_ or {}
    if "partition" in facts:
        screen.progress(str(artifact.flow_run_id), str(facts["partition"]), parsed(facts))
    else:
        screen.backfill(str(artifact.description), float(str(artifact.data)) / 100)


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
