"""`overnight undo`: publish earlier rows of a partition again, without Ray. It starts no Prefect server.

Others learn of it as of any publish. A Prefect server that runs gets the event, the table and the calendar.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from prefect.settings import PREFECT_CLIENT_MAX_RETRIES

from overnight.flows.job.model import Job
from overnight.flows.ledger.artifacts import show_partitions
from overnight.flows.ledger.results import Results
from overnight.flows.notices.run_notice import Notice
from overnight.flows.runs.local_server import client_settings, known_server, settings_shared
from overnight.flows.runs.prefect_internals import send_logs_and_events
from overnight.flows.runs.run import describe_run, refuse_foreign_files, refuse_other_job
from overnight.tasks.errors import CheckFailed, JobError
from overnight.tasks.state import lease
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.write.in_process import publish_earlier, repair

LONGEST_SECONDS = 20.0  # to send the event


def undo(
    job: Job, partition: str | None = None, to: str = "", reason: str = "", file: str = "JOB.yaml"
) -> dict[str, Any]:
    """Publish a publication again, by default the one before, and return its receipt.

    `to` is a number or a generation. Raise `NotKept` if its rows are gone, `PartitionBusy` during a run.
    """
    results = Results(job, file, job.published)
    day = results.partition(partition)
    results.result(day)  # which must exist, before a lease makes a folder for it
    run, notice = describe_run(job, day, reason), Notice(job, day, file)
    with _told(job, notice), lease.held(run.ledger, run.attempt) as token:
        run = replace(run, token=token)
        refuse_other_job(run)
        receipt = _repaired(job, run) or _publish_again(job, run, results, to)
        run = replace(run, generation=receipt["generation"])
        notice.begin(run)
        notice.end(run, receipt)
    return receipt


def _publish_again(job: Job, run: Run, results: Results, to: str) -> dict[str, Any]:
    refuse_foreign_files(run, job.sink_for(run))
    current = results.result(run.partition).receipt
    earlier = results.publication(run.partition, to or "before").receipt
    if earlier["generation"] == current["generation"]:
        raise JobError(f"--to {to}: expected an earlier publication of {run.partition}, found the published one.")
    moment, _, suffix = run.attempt.partition("-")
    run = replace(run, generation=f"{moment}-{earlier['fingerprint'][:6]}-{suffix}")
    return publish_earlier(run, job.sink_for(run), earlier, current)


@contextlib.contextmanager
def _told(job: Job, notice: Notice) -> Iterator[None]:
    """Send the notice after the body, and show the partitions on the Prefect server, if one runs."""
    url = known_server()
    settings: dict[Any, str] = {}
    if url:
        settings = {**client_settings(url), PREFECT_CLIENT_MAX_RETRIES: "0"}
    with settings_shared(settings):
        yield
        notice.send()
        if url:
            show_partitions(job)
            send_logs_and_events(LONGEST_SECONDS)


def _repaired(job: Job, run: Run) -> dict[str, Any] | None:
    """Repair an interrupted publish. Return its receipt if it was an undo, which is complete now."""
    publish = repair(run, job.sink_for(run))
    if not publish or not publish.receipt:
        return None
    if publish.receipt.get("undo"):
        return read_json(run.ledger / "receipt.json")
    raise CheckFailed(
        f"{run.job}/{run.partition}: the interrupted publish of {publish.generation} was completed just now. "
        "Nothing was undone. Look at it, and run the command again to undo it."
    )
