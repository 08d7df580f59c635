"""Files that come, change and go between publishes, in drawn order: readers always find what a run of all rows gives.

The reading, the staging and the publish are those of a run, without Ray and Prefect.
"""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from overnight.flows.job.model import Job
from overnight.flows.runs.attempt import opened
from overnight.flows.runs.continuation import published_or_scope
from overnight.flows.runs.run import describe_run
from overnight.tasks.engine.stream import Streamed
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.rows import blocks
from overnight.tasks.state import read_plan, row_ranges, staged_parts
from overnight.tasks.state.manifest import COUNTS, read_manifest, read_schema
from overnight.tasks.state.pending_units import plan_read, settled
from overnight.tasks.state.run import Run
from overnight.tasks.write.publish.continued import continued_receipt, leave_for_next, read_continued
from overnight.tasks.write.publish.publish import audit, prepared, publish
from overnight.tasks.write.publish.receipt import make_receipt
from tests import jobs

SIZES = (0, 1, 3, 7)


def stage_pending(run: Run, job: Job) -> int:
    """Stage the rows that no part settles, one part for each block; the number of rows."""
    plan_read(run)
    units, merged, count = read_plan.read_order(run.order), settled(run), 0
    for number, block in enumerate(job.source.rows(units, read_schema(run.manifest))):
        is_settled = row_ranges.inside(*row_ranges.columns_of(block, "__unit", "__row"), row_ranges.ranges_only(merged))
        fresh = block.filter(pa.array(~is_settled))
        live = fresh.filter(pc.equal(fresh["__state"], blocks.LIVE))
        rows = live.select(["row_id", "x", *staged_parts.SOURCE_ROW]) if len(live) else live
        count += len(live)
        staged_parts.write_part(
            run.parts,
            f"{run.attempt}-{number:06d}",
            rows,
            staged_parts.DETAILS.empty_table(),
            row_ranges.ranges_of(fresh),
            {},
            "zstd",
        )
    return count


def run_job(job: Job) -> tuple[dict[str, Any], int]:
    """Return the receipt, and the number of rows that ran."""
    receipt, scope = published_or_scope(job, describe_run(job, "all"), False, False)
    if receipt:
        return receipt, 0
    with opened(job, scope, force=False) as run:
        if not run.manifest.exists():
            take_manifest(run.manifest, job.source, "all")
        count = stage_pending(run, job)
        records, continued = staged_parts.read_records(run.parts), read_continued(run)
        merged = row_ranges.merge([record.ranges for record in records])
        counts, inputs = read_manifest(run.manifest, COUNTS)
        totals = audit(counts, merged, run)
        with prepared(run, job.sink, records, merged, continued.kept if continued else None) as ready:
            files = [*(continued.kept.files if continued else ()), *job.sink.published(run, ready)]
            facts = {"inputs": inputs, "columns": ready.columns}
            receipt = make_receipt(run, totals, ready.rows, records, files, facts, Streamed())
            if continued:
                receipt |= continued_receipt(run, continued, records, merged, totals, ready.rows, "now")
            leave_for_next(run, records, merged, ready, files)
            return publish(run, job.sink, ready, staged_parts.QUARANTINE.empty_table(), receipt), count


def change(folder: Path, contents: dict[str, list[int]], draw: random.Random) -> tuple[int, bool]:
    """Add, change or delete one to three files. Return the rows to run, and if any file stays."""
    before, to_run = dict(contents), 0
    for name in draw.sample(["a", "aa", "a.b", "b", "c", "d", "e", "f"], draw.randint(1, 3)):
        if name in contents and draw.random() < 0.4 and len(contents) > 1:
            del contents[name]
            (folder / f"{name}.parquet").unlink()
            continue
        contents[name] = [draw.randrange(1000) for _ in range(draw.choice(SIZES))]
        rows = pa.table({"x": pa.array(contents[name], pa.int64())})
        pq.write_table(rows, folder / f"{name}.parquet", row_group_size=3)
        to_run += len(contents[name])
    stays = any(before.get(name) is rows and rows for name, rows in contents.items())
    return to_run, stays


@pytest.mark.parametrize("seed", range(3))
def test_readers_find_the_rows_of_all_files_after_each_change(seed: int, tmp_path: Path) -> None:
    draw, contents = random.Random(seed), dict[str, list[int]]()
    (tmp_path / "in").mkdir()
    job = jobs.load(tmp_path, source={"kind": "parquet", "path": f"{tmp_path}/in", "allow_empty": True})
    for _ in range(12):
        to_run, stays = change(tmp_path / "in", contents, draw)
        before = sum(map(len, contents.values()))
        receipt, count = run_job(job)
        assert count == (to_run if stays else before)
        expected = {f"{name}.parquet#{n}": x for name, values in contents.items() for n, x in enumerate(values)}
        tables = [pq.read_table(tmp_path / "out" / file, partitioning=None) for file in receipt["files"]]
        rows = [row for table in tables for row in table.select(["row_id", "x"]).to_pylist()] if expected else []
        assert {row["row_id"]: row["x"] for row in rows} == expected
        assert len(rows) == len(expected) == receipt["rows_in"] == receipt["rows_out"]
        assert len(receipt["files"]) <= 10
        if stays:
            assert receipt["continued"]["rows_reused"] == len(expected) - count
        assert run_job(job) == (receipt, 0)
