"""Runs that should have begun by now: Prefect marked them Late, or a worker took them and did not start them.

The ledger knows no run before it begins, so this comes from the Prefect server.
"""

import contextlib
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateName,
)
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus
from overnight.flows.runs.local_server import client_settings, known_server
from overnight.flows.schedule.partitions import due_partitions
from overnight.tasks.errors import JobError

WAITING = ["Late", "Pending", "Submitting"]
LATE_AFTER = timedelta(minutes=5)  # in Pending or Submitting; a node of Kubernetes may first fetch an image
SERVER_SECONDS = 5.0


def late_runs(
    client: SyncPrefectClient, flow_names: Collection[str], deployment_names: Collection[str] | None = None
) -> list[FlowRun]:
    """Return the runs of these flows that should have begun by now, in the order in which they were due."""
    of_deployments = None
    if deployment_names:
        of_deployments = DeploymentFilter(name=DeploymentFilterName(any_=list(deployment_names)))
    waiting = client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=sorted(flow_names))),
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(name=FlowRunFilterStateName(any_=WAITING))),
        deployment_filter=of_deployments,
        limit=100,
    )
    now = datetime.now(UTC)
    late = [
        run for run in waiting if run.state_name == "Late" or (run.state and now - run.state.timestamp > LATE_AFTER)
    ]
    return sorted(late, key=lambda run: run.expected_start_time or now)


def with_late_runs(job: Job, entries: list[PartitionStatus]) -> list[PartitionStatus]:
    """Return the entries. A missing partition whose run should have begun by now has this as its reason."""
    missing = {entry.partition for entry in entries if entry.status == "missing"}
    if not missing:
        return entries
    sentences: dict[str, str] = {}
    with contextlib.suppress(Exception):  # only the reason depends on the server
        sentences = _late_partitions(job)
    result = []
    for entry in entries:
        if entry.partition in missing and entry.partition in sentences:
            entry = replace(entry, why=(*entry.why, sentences[entry.partition]))  # noqa: PLW2901
        result.append(entry)
    return result


def _late_partitions(job: Job) -> dict[str, str]:
    """Return for each partition of the job whose run should have begun by now a sentence about this run."""
    url = known_server()
    if not url:
        return {}
    from overnight.flows.batch_inference import batch_inference  # without a server, the status needs no flow

    with (
        temporary_settings({**client_settings(url), PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(sync_client=True, httpx_settings={"timeout": SERVER_SECONDS}) as client,
    ):
        runs = late_runs(client, [batch_inference.name], [job.name])
    sentences: dict[str, str] = {}
    for run in runs:
        with contextlib.suppress(JobError):  # the run's parameter names no partition of the job
            moment = run.expected_start_time
            partitions = due_partitions(job, run.parameters.get("partition"), moment, datetime.now(UTC))
            since = f" since {run.state.timestamp.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if run.state else ""
            sentence = f"a run of it has not begun ({run.state_name}{since})"
            sentences |= dict.fromkeys(partitions, sentence)
    return sentences
