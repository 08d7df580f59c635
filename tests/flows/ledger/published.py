"""What runs leave in the ledger, without a run: a partition that is published, or the lease of a process that died."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect.logging import disable_run_logger

from overnight.flows.job.model import Job
from overnight.flows.runs.attempt import Scope, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.state import lease
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.run import write_json
from overnight.tasks.storage.location import Location

ATTEMPTS = (f"20260103T{number:06}-aaaaaa" for number in itertools.count())


def publish(job: Job, day: str, **changes: Any) -> dict[str, Any]:
    """Write all that a run leaves in the ledger of a partition but for its rows, and return its receipt."""
    attempt = replace(describe_run(job, day), attempt=next(ATTEMPTS))
    with disable_run_logger(), opened(job, Scope(attempt), force=False) as run:
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


def leave_lease(ledger: Path, owner: str, flow_run: str = "", **changes: Any) -> Path:
    """Write the lease of a process that died while it held a partition, with these changes. Return its path."""
    with lease.held(Location(str(ledger)), owner, flow_run):
        newest = max((ledger / "lease").iterdir())
        held = json.loads(newest.read_text())
    newest.write_text(json.dumps(held | {"started": 1, **changes}))
    return newest
