"""A read that stopped anywhere: the next one reads only what no staged part settles."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from overnight.tasks.engine.datasource import OrderedRead
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.manifest import read_schema
from overnight.tasks.state.pending_units import plan_read
from overnight.tasks.state.run import Run
from tests.contracts.sources.adapter import ROWS, Adapter
from tests.contracts.sources.suite import promise
from tests.tasks.runs import make_run

FILES = 4


def rows_of_next_attempt(run: Run, source: Any) -> pa.Table:
    plan_read(run)
    tasks = OrderedRead(Read(source, read_schema(run.manifest)), run).get_read_tasks(1)
    return pa.concat_tables([block for task in tasks for block in task()], promote_options="permissive")


def stage(run: Run, name: str, rows: pa.Table) -> None:
    """Write a part that settles these rows."""
    table, errors = pa.table({"row_id": rows["row_id"]}), staged_parts.DETAILS.empty_table()
    staged_parts.write_part(run.parts, name, table, errors, row_ranges.ranges_of(rows), {}, "none")


def some_pieces(rows: pa.Table) -> list[pa.Table]:
    draw = random.Random(1)
    starts = [draw.randrange(len(rows)) for _ in range(3)]
    return [rows.slice(start, draw.randrange(1, len(rows) // 2)) for start in starts]


def all_but_one(rows: pa.Table) -> list[pa.Table]:
    live = [place for place, state in enumerate(rows["__state"].to_pylist()) if state == blocks.LIVE]
    return [rows.slice(0, live[-1]), rows.slice(live[-1] + 1)]


def row_ids(rows: pa.Table) -> list[str]:
    live = rows.filter(pa.array(rows["__state"].to_numpy() == blocks.LIVE))
    return list(live["row_id"].to_pylist())


@promise("resume", "an attempt reads the rows that no staged part of an earlier one settles, and no others")
def test_what_is_staged_is_not_read_again_and_all_the_rest_is(leaf: Adapter, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        leaf.write(tmp_path / "in", str(number), leaf.rows(ROWS, number * ROWS))
    source = leaf.source(tmp_path / "in")
    for staged in (some_pieces, all_but_one):
        run = make_run(tmp_path / staged.__name__, partition="all")
        take_manifest(run.manifest, source, run.partition, None)
        whole = rows_of_next_attempt(run, source)
        assert len(set(row_ids(whole))) == len(row_ids(whole)) == FILES * ROWS
        pieces = staged(whole)
        for number, piece in enumerate(pieces):
            stage(run, f"20260102T000000-aaaaaa-{number:06d}", piece)
        rest = rows_of_next_attempt(run, source)
        settled = set(row_ids(pa.concat_tables(pieces)))
        assert sorted([*settled, *row_ids(rest)]) == sorted(row_ids(whole)), staged.__name__
        stage(run, "20260102T000000-bbbbbb-000000", rest)
        plan_read(run)
        assert not OrderedRead(Read(source, read_schema(run.manifest)), run).get_read_tasks(1)
