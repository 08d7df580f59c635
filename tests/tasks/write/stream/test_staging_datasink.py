"""From blocks to parts: what the stream carried is what the part settles."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray.data

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.rows import apply, result, tensors
from overnight.tasks.rows import blocks as rows
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.read_plan import PENDING, read_block
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream.staging_datasink import StagingDatasink
from tests.tasks.blocks import source_block
from tests.tasks.manifests import write_order
from tests.tasks.runs import make_run

SINK = ParquetSink(path="-")


def block(unit: int, first: int, count: int, **columns: Any) -> pa.Table:
    names = pa.array([f"{unit}.csv#{first + i}" for i in range(count)], pa.string())
    return source_block(unit, first, pa.table({"row_id": names, **columns}))


def bad(unit: int, number: int) -> pa.Table:
    identity = {"row_id": [f"{unit}.csv#{number}"], "uri": ["/in"]}
    return rows.quarantined_block(identity, unit, [number], "ingest", [RowError("bad")])


def write(tmp_path: Path, blocks: list[pa.Table], task: int = 0, **run: Any) -> staged_parts.Record:
    target = make_run(tmp_path, **run)
    StagingDatasink(target, "zstd", 10, SINK).write(blocks, SimpleNamespace(task_idx=task))
    record = staged_parts.read_records(target.parts)[-1]
    lengths = [1 if r["state"] == rows.END else r["stop"] - r["start"] for r in record.ranges.to_pylist()]
    assert sum(lengths) == sum(map(len, blocks))
    return record


def test_a_part_tells_which_columns_of_its_rows_are_not_published(tmp_path: Path) -> None:
    pictures = rows.leaving_out(block(0, 0, 2, image=[b"a", b"b"], x=[1, 2]), ["image"])
    record = write(tmp_path, [pictures, block(1, 0, 1, x=[3]), bad(2, 0)])
    assert record.left_out == ("image",)
    assert "image" not in record.schema.names


def test_every_row_is_settled_as_it_ended_and_only_live_rows_are_written(tmp_path: Path):
    done = apply.apply(
        block(0, 0, 4, x=[1, 2, 3, 4]),
        "preprocess",
        lambda live: result.Outcome(keep=np.array([True, False, True, True]), failed={3: ValueError("no")}),
    )
    end = rows.settled_block({}, 0, [5], rows.END)
    staged = StagingDatasink(make_run(tmp_path / "other"), "zstd", 10, SINK).write(
        [end, done, bad(0, 4)], SimpleNamespace(task_idx=0)
    )
    assert staged.rows == {"ingest": 5, "preprocess": 4, "infer": 0, "write": 2}
    record = write(tmp_path, [end, done, bad(0, 4)])
    assert record.ranges.to_pylist() == [
        {"unit": 0, "start": 0, "stop": 1, "state": rows.LIVE},
        {"unit": 0, "start": 1, "stop": 2, "state": rows.FILTERED},
        {"unit": 0, "start": 2, "stop": 3, "state": rows.LIVE},
        {"unit": 0, "start": 3, "stop": 5, "state": rows.QUARANTINED},
        {"unit": 0, "start": 0, "stop": 5, "state": rows.END},
    ]
    parts = make_run(tmp_path).parts
    with (parts / f"{record.name}.part").open() as file:
        assert pq.read_table(file).select(["row_id", "x", "__row"]).to_pylist() == [
            {"row_id": "0.csv#0", "x": 1, "__row": 0},
            {"row_id": "0.csv#2", "x": 3, "__row": 2},
        ]
    assert record.left_out == ()
    errors = staged_parts.read_errors(parts, [record], row_ranges.merge([record.ranges])).to_pylist()
    assert [(e["row_id"], e["stage"], e["error_type"], e["error_message"]) for e in errors] == [
        ("0.csv#3", "preprocess", "ValueError", "no"),
        ("0.csv#4", "ingest", "RowError", "bad"),
    ]
    assert {stage: measures["rows"] for stage, measures in record.stages.items()} == {
        "ingest": 5,
        "preprocess": 4,
        "infer": 0,
        "write": 2,
    }


def test_blocks_of_unlike_columns_and_shapes_are_one_part(tmp_path: Path):
    record = write(
        tmp_path,
        [
            block(0, 0, 2, e=tensors.to_arrow(np.ones((2, 2), np.float32)), only=["a", "b"]),
            block(1, 0, 1, e=tensors.to_arrow([None])),
            block(2, 0, 1, e=tensors.to_arrow(np.ones((1, 3), np.float32))),
            bad(3, 0),
        ],
    )
    assert record.rows == 4
    assert record.schema.field("e").type == pa.list_(pa.float32())
    assert len(row_ranges.merge([record.ranges])) == 4


def test_a_part_may_hold_no_row_at_all(tmp_path: Path):
    record = write(tmp_path, [bad(0, 0), rows.settled_block({}, 0, [1], rows.END)])
    assert (record.rows, record.ranges["state"].to_pylist()) == (0, [rows.QUARANTINED, rows.END])


def test_a_call_repeated_for_the_same_blocks_replaces_its_part(tmp_path: Path):
    for _ in range(2):
        write(tmp_path, [block(0, 0, 3), bad(0, 3)], task=7)
    assert len(staged_parts.read_records(make_run(tmp_path).parts)) == 1


def test_a_column_named_like_the_partition_is_refused_unless_there_is_none(tmp_path: Path):
    dated = block(0, 0, 1, date=["2026-01-01"])
    with pytest.raises(ContractError, match=r"'date' like the partition column.*sink\.partition_column"):
        write(tmp_path, [dated])
    assert write(tmp_path, [dated], partition="all", partition_column="day").rows == 1


def test_types_that_change_from_block_to_block_are_named(tmp_path: Path):
    with pytest.raises(ContractError, match=r"x.*int64.*string"):
        write(tmp_path, [block(0, 0, 1, x=[1]), block(1, 0, 1, x=["a"])])


def test_a_stream_through_ray_settles_every_row_of_real_files(tmp_path: Path, ray_session: None):
    (tmp_path / "in").mkdir()
    for i in range(8):
        lines = ["bad" if n == i else f"{i},{n}" for n in range(50)]
        (tmp_path / "in" / f"{i}.csv").write_text("\n".join(["a,b", *lines]))
    source, run = Csv(path=str(tmp_path / "in")), make_run(tmp_path)
    units = source.units(list_inputs(source, "all"))
    pending = units.append_column("settled", pa.nulls(8, pa.list_(pa.int64()))).cast(PENDING)
    write_order(run.order, pending, np.arange(8) // 2)
    schema = source.common_schema(units)
    tables = [table for part in range(4) for table in read_units(read_block(run.order, part), source, run, schema)]
    ray.data.from_arrow(tables).write_datasink(StagingDatasink(run, "zstd", 120, SINK), ray_remote_args={"num_cpus": 0})
    records = staged_parts.read_records(run.parts)
    assert len(records) > 1
    totals = row_ranges.count(units, row_ranges.merge([record.ranges for record in records]))
    assert (totals.rows, totals.written, totals.quarantined) == (400, 392, 8)
    assert not len(totals.unsettled_units)
    assert not len(totals.doubled_units)
