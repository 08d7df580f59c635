"""Late data: a scheduled run requests runs of earlier days whose inputs changed, up to `schedule.lookback_days` back.

Each day is a run of the same deployment, which waits for its turn like any other and has its own receipt. If the
scheduled run restarts after a crash, it requests no day twice.
"""

from dataclasses import replace
from uuid import UUID

import prefect.runtime
from prefect import get_run_logger
from prefect.client.orchestration import get_client

from overnight.flows.job.model import Job
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import partitions_before
from overnight.flows.schedule.run_partition import request_run
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state.manifest import census
from overnight.tasks.state.publications import results_like
from overnight.tasks.state.run import Run, read_json

TAG = "lookback"


def look_back(job: Job, run: Run, parameter: str) -> None:
    """Request runs of the `schedule.lookback_days` before the run's own whose inputs changed since they were published.

    Only a run that the schedule made does so. An error becomes a warning, because the next night checks again.
    """
    days = job.times.lookback_days
    if not days or not job.is_dated or parameter.strip() or not prefect.runtime.deployment.id:
        return
    log = get_run_logger()
    try:
        with get_client(sync_client=True) as client:
            if not client.read_flow_run(UUID(prefect.runtime.flow_run.id)).auto_scheduled:
                return
            deployment = UUID(prefect.runtime.deployment.id)
            for earlier in changed_days(job, run, days):
                log.info("the inputs of %s/%s changed since it was published; it runs again", job.name, earlier)
                reason = f"inputs changed, seen by the run of {run.partition}"
                key = f"overnight lookback {deployment} {run.partition} {earlier}"
                request_run(client, deployment, job, earlier, reason, key, [TAG])
    except Exception as error:
        log.warning(
            "cannot check the days before %s/%s for late data: %s: %s",
            *(job.name, run.partition, type(error).__name__, error),
        )


def changed_days(job: Job, run: Run, days: int) -> list[str]:
    """Return the published partitions whose inputs have changed, newest first, of the `days` before the run's own."""
    days_to_run, current = [], describe_run(job, run.partition)  # `run` may have the fingerprint of late rows
    for day in partitions_before(job, run.partition, days)[::-1]:
        receipt = read_json(replace(run, partition=day).ledger / "receipt.json")
        if not receipt or receipt["job"] != job.name:
            continue
        try:
            inputs = census(stream_inputs(job.source, day))
            if not inputs.count:
                get_run_logger().info("%s/%s stays as it is: its inputs are gone", job.name, day)
            elif inputs.digest not in [result["inputs"] for result in results_like(receipt, current) or [receipt]]:
                days_to_run.append(day)
        except InputError as error:
            get_run_logger().info("%s/%s stays as it is: %s", job.name, day, error)
    return days_to_run
