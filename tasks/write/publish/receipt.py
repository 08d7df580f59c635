"""The receipt: the JSON file of a publish.

`rows_in` counts the source rows, and `rows_written` the written ones among them. `rows_out` counts the published rows;
they are more if a step makes several rows of one. Counts are for the whole partition. Seconds and rates are for the new
rows of this attempt.
"""

import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from typing import Any

from overnight.tasks.engine.stream import Streamed
from overnight.tasks.errors import STAGES
from overnight.tasks.rows import blocks
from overnight.tasks.state.row_ranges import Totals
from overnight.tasks.state.run import FORMAT_VERSION, Run, now
from overnight.tasks.state.staged_parts import Record

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
    """Return the receipt of a partition that is about to be published, with the further keys of `facts`.

    `totals` are audited, `records` are the footers of the staged parts, and `files` are paths below the sink.
    """
    finished_at = now()
    duration = datetime.fromisoformat(finished_at) - datetime.fromisoformat(run.started_at)
    seconds = round(duration.total_seconds(), 3)
    own_records = [record for record in records if record.attempt == run.attempt]
    new_rows = sum(map(_source_rows, own_records))
    following = {}
    if run.after:
        following = {"after": run.after}
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
        "finished_at": finished_at,
        "seconds": seconds,
        "rows_per_second": round(new_rows / seconds, 3) if seconds else 0.0,
        "stages": _stages(own_records, streamed),
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
        **following,
        **facts,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results, by name.

    `commit` is the git commit of the working directory; it is missing if there is none.
    """
    numbers = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            numbers[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True)
        numbers["commit"] = git.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass
    return numbers


def rows_remembered(records: Sequence[Record]) -> dict[str, int]:
    """Return for each model how many rows took a result of an earlier run."""
    rows: Counter[str] = Counter()
    for record in records:
        rows.update({name: int(count) for name, count in record.stages.get("remembered", {}).items()})
    return dict(rows)


def _source_rows(record: Record) -> int:
    starts, stops, states = (record.ranges[name].to_numpy() for name in ("start", "stop", "state"))
    return int((stops - starts)[states != blocks.END].sum())


def _stages(records: Sequence[Record], streamed: Streamed) -> dict[str, dict[str, Any]]:
    """Return worker seconds, rows and bytes by stage, and between which moments it ran in the stream, if it did."""
    stages: dict[str, dict[str, Any]] = {}
    for stage in STAGES:
        stages[stage] = {"seconds": 0.0, "rows": 0, "bytes": 0}
        for record in records:
            for name, amount in record.stages.get(stage, {}).items():
                stages[stage][name] += amount
        first, last = streamed.times.get(stage, (None, None))
        stages[stage] |= {"started_at": first, "finished_at": last}
        stages[stage]["seconds"] = round(stages[stage]["seconds"], 3)
    stages["write"]["seconds"] = round(streamed.write_seconds, 3)
    return stages
