"""Partitions that are published without a run: all that a run leaves in the ledger, and no rows."""

from typing import Any

from prefect.logging import disable_run_logger

from overnight.flows.job.model import Job
from overnight.flows.runs.attempt import opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.run import write_json


def publish(job: Job, day: str, **changes: Any) -> dict[str, Any]:
    """Write what a run leaves in the ledger of a partition, and return its receipt."""
    with disable_run_logger(), opened(job, describe_run(job, day), force=False) as run:
        take_manifest(run.manifest, job.source, day)
        receipt = {
            **{"job": run.job, "partition": day, "generation": run.generation, "attempt": run.attempt, "files": []},
            **{"rows_in": 10, "rows_out": 8, "rows_filtered": 2, "rows_quarantined": 0, "seconds": 1.0},
            **{"fingerprint": run.fingerprint, "ingredients": run.ingredients, "commits": dict(run.commits)},
            **{"inputs": read_manifest(run.manifest, [])[1], "finished_at": "2026-01-03T00:00:00.000Z"},
            **{"token": run.token, **changes},
        }
        write_json(run.ledger / f"receipts/{run.generation}.json", receipt)
        write_json(run.ledger / "receipt.json", receipt)
    return receipt
