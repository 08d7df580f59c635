"""The receipt: the JSON file of a publish.

`rows_in` counts the source rows, and `rows_written` the written ones among them. `rows_out` counts the published rows;
they are more if a step makes several rows of one. Counts are for the whole partition. Seconds and rates are for the new
rows of this attempt.
"""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from typing import Any

from overnight.tasks.engine.stream import Streamed
from overnight.tasks.errors import STAGES
from overnight.tasks.rows import blocks
from overnight.tasks.state.row_ranges import Totals
from overnight.tasks.state.run import FORMAT_VERSION, Run, now
from overnight.tasks.state.staged_parts import Measures, Record

PACKAGES = ("overnight", "prefect", "prefect-ray", "ray", "pyarrow", "torch", "transformers", "numpy")


def make_receipt(
    run: Run,
    totals: Totals,
    published_rows: int,
    records: Sequence[Record],
    files: list[str],
    facts: Mapping[str, Any],
    streamed: Streamed,
) -> dict[str, Any]:
    """Return the receipt of a partition that is about to be published.

    Args:
        totals: The audited counts of the partition's source rows.
        published_rows: The number of rows to publish.
        records: The footers of the staged parts. Those of this attempt give the seconds and rates of the receipt.
        files: The files to publish, as paths below the sink.
        facts: Further keys of the receipt.
        streamed: The result of the stream that staged the parts of this attempt.
    """
    finished = now()
    seconds = _seconds_between(run.started_at, finished)
    new = [record for record in records if record.attempt == run.attempt]
    new_rows = sum(_source_rows(record) for record in new)
    stages = _stages(new)
    stages["write"]["seconds"] = round(streamed.write_seconds, 3)
    return {
        "job": run.job,
        "partition": run.partition,
        "generation": run.generation,
        "status": "published",
        "rows_in": totals.rows,
        "rows_written": totals.written,
        "rows_out": published_rows,
        "rows_filtered": totals.filtered,
        "rows_quarantined": totals.quarantined,
        "rows_resumed": totals.rows - new_rows,
        "started_at": run.started_at,
        "finished_at": finished,
        "seconds": seconds,
        "rows_per_second": round(new_rows / seconds, 3) if seconds else 0.0,
        "stages": {stage: measures | _times(stage, streamed) for stage, measures in stages.items()},
        "files": files,
        "versions": versions(),
        "attempt": run.attempt,
        "token": run.token,
        "backfill": run.backfill,
        "fingerprint": run.fingerprint,
        "ingredients": run.ingredients,
        "commits": dict(run.commits),
        "format_version": FORMAT_VERSION,
        "reason": run.reason,
        "scheduled_for": run.scheduled_for,
        "limit_rows": run.limit_rows,
        **facts,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results, by name.

    `commit` is the git commit of the working directory; it is missing if there is none.
    """
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True)
        found["commit"] = done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass
    return found


def _source_rows(record: Record) -> int:
    ranged = record.ranges["state"].to_numpy() != blocks.END
    return int((record.ranges["stop"].to_numpy() - record.ranges["start"].to_numpy())[ranged].sum())


def _stages(records: Sequence[Record]) -> Measures:
    """Return worker seconds, rows and bytes by stage, summed over parts; the shuffle moves no rows of its own."""
    stages: Measures = {stage: {"seconds": 0.0, "rows": 0, "bytes": 0} for stage in STAGES}
    for record in records:
        for stage, measures in record.stages.items():
            for name, amount in measures.items():
                stages[stage][name] += amount
    for measures in stages.values():
        measures["seconds"] = round(measures["seconds"], 3)
    return stages


def _times(stage: str, streamed: Streamed) -> dict[str, str | None]:
    """Return between which moments the stage ran in the stream; None for both if it had no Ray task."""
    first, last = streamed.times.get(stage, (None, None))
    return {"started_at": first, "finished_at": last}


def _seconds_between(start: str, end: str) -> float:
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 3)
