"""`overnight undo`: publish earlier rows of a partition again, without Prefect's server and Ray."""

from dataclasses import replace
from typing import Any

from overnight.flows.job.model import Job
from overnight.flows.ledger.results import Results
from overnight.flows.report.report import keep_report
from overnight.flows.runs.run import describe_run, refuse_foreign_files, refuse_other_job
from overnight.tasks.errors import CheckFailed, JobError
from overnight.tasks.state import lease
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.write.in_process import publish_earlier, repair


def undo(
    job: Job, partition: str | None = None, to: str = "", reason: str = "", file: str = "JOB.yaml"
) -> dict[str, Any]:
    """Publish a publication again, by default the one before, and return its receipt.

    `to` is a number or a generation. Raise `NotKept` if its rows are gone, `PartitionBusy` during a run.
    """
    results = Results(job, file, job.published)
    day = results.partition(partition)
    results.result(day)  # which must exist, before a lease makes a folder for it
    run = describe_run(job, day, reason)
    with lease.held(run.ledger, run.attempt) as token:
        run = replace(run, token=token)
        refuse_other_job(run)
        if receipt := _repaired(job, run):
            return receipt
        refuse_foreign_files(run, job.sink_for(run))
        current = results.result(day).receipt
        earlier = results.publication(day, to or "before").receipt
        if earlier["generation"] == current["generation"]:
            raise JobError(f"--to {to}: expected an earlier publication of {day}, found the published one.")
        moment, _, suffix = run.attempt.partition("-")
        run = replace(run, generation=f"{moment}-{earlier['fingerprint'][:6]}-{suffix}")
        receipt = publish_earlier(run, job.sink_for(run), earlier, current)
        keep_report(job, run, receipt, file)
    return receipt


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
