"""Undo: publish the rows of an earlier generation again, in the place of the published ones.

An undo is a publish, with a generation, a receipt and file names of its own. So it is atomic and fenced as every
publish is, and the next run repairs one that died. Its generation has no `generation.json`: no run resumes it.
"""

import contextlib
import getpass
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import STAGES, NotKept
from overnight.tasks.state.publications import COMPARED, undone_records
from overnight.tasks.state.published_rows import copy_record
from overnight.tasks.state.run import Run, now
from overnight.tasks.state.staged_parts import QUARANTINE
from overnight.tasks.write.publish.publish import publish, recalled
from overnight.tasks.write.sink import Sink

# What a receipt has of the run that computed its rows. The undo computed none: no time or cost may count twice.
OF_A_RUN = ("performance", "samples", "incidents", "logs", "spent", "reused", "batches", "undo")


def publish_earlier(run: Run, sink: Sink, earlier: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Publish the rows of the receipt `earlier` in the place of those of `current`, and return the new receipt.

    Raise `NotKept` if these rows, or their quarantine, are no longer there.
    """
    errors = _quarantine(run, earlier)
    copy_record(run, earlier["generation"])  # for a later retry of its quarantined rows, and for a verification
    with recalled(run, sink, earlier) as ready:
        return publish(run, sink, ready, errors, _receipt(run, earlier, current, sink.published(run, ready)))


def _receipt(run: Run, earlier: Mapping[str, Any], current: Mapping[str, Any], files: list[str]) -> dict[str, Any]:
    finished_at = now()
    seconds = datetime.fromisoformat(finished_at) - datetime.fromisoformat(run.started_at)
    return {
        **{name: value for name, value in earlier.items() if name not in OF_A_RUN},
        "generation": run.generation,
        "attempt": run.attempt,
        "token": run.token,
        "rows_resumed": earlier["rows_in"],
        "started_at": run.started_at,
        "finished_at": finished_at,
        "seconds": round(seconds.total_seconds(), 3),
        "rows_per_second": 0.0,
        "stages": {stage: {"seconds": 0.0, "rows": 0, "bytes": 0} for stage in STAGES},
        "files": files,
        "backfill": "",
        "scheduled_for": None,
        "reason": run.reason,
        "incidents": [],
        "undo": {
            "generation": earlier["generation"],
            "by": _user(),
            "undone": {name: current.get(name) for name in COMPARED},
            "undone_before": _undone_before(earlier, current),
        },
    }


def _undone_before(earlier: Mapping[str, Any], current: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what stays undone of the undos before. What is published again on purpose does not."""
    results = []
    for record in undone_records(current):
        if (record["fingerprint"], record.get("inputs")) != (earlier["fingerprint"], earlier.get("inputs")):
            results.append(record)
    return results


def _quarantine(run: Run, earlier: Mapping[str, Any]) -> pa.Table:
    """Return the quarantined rows of an earlier generation."""
    file = run.ledger / "generations" / earlier["generation"] / "quarantine"
    with contextlib.suppress(FileNotFoundError), file.open() as content:
        return pq.ParquetFile(content).read()
    if earlier["rows_quarantined"]:
        raise NotKept(
            f"{run.job}/{run.partition}: expected the quarantine of the generation {earlier['generation']}, found none "
            "in its folder. Nothing was changed. `overnight clean` has removed it: run the partition again."
        )
    return QUARANTINE.empty_table()


def _user() -> str:
    """Return who undoes it, as user@machine."""
    user = "unknown"
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
