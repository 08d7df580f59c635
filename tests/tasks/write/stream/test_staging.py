"""From blocks to parts: what the stream carried is what the part settles."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from overnight.tasks.errors import ContractError, RowError, explain
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.rows import apply, result, tensors
from overnight.tasks.rows import blocks as rows
from overnight.tasks.rows.user_function import outcome_of
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream import staging as staging_module
from overnight.tasks.write.stream.staging import Staged, Staging, write_part
from tests.tasks.blocks import source_block
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
    write_part(target, SINK, f"{target.attempt}-{task:06d}", *blocks)
    record = staged_parts.read_records(target.parts)[-1]
    lengths = [1 if r["state"] == rows.END else r["stop"] - r["start"] for r in record.ranges.to_pylist()]
    assert sum(lengths) == sum(map(len, blocks))
    return record


def test_tokens_and_costs_of_chat_models_are_summed_with_and_without_a_models_name() -> None:
    table = pa.table({"prompt_tokens": [3, None], "judge_completion_tokens": [4, 5], "cost": [0.5, 0.25], "x": [9, 9]})
    assert staging_module.tokens_and_cost(table) == (12, 0.75)
    assert staging_module.tokens_and_cost(pa.table({"cost": ["dear"]})) == (0, None)
    with_cost, without = Staged(tokens=1, filtered=2, cost=0.5), Staged(tokens=2)
    total = with_cost + without + with_cost
    assert (total.tokens, total.filtered, total.cost) == (4, 4, 1.0)
    assert (without + without).cost is None


def test_columns_of_the_user_that_are_named_like_those_of_chat_models_end_no_run() -> None:
    nan, infinity = float("nan"), float("inf")
    table = pa.table(
        {"prompt_tokens": [nan, 3.0, None], "completion_tokens": [2**60, 1, None], "cost": [infinity, 2.0, nan]}
    )
    assert staging_module.tokens_and_cost(table) == (2**60, 2.0)
    assert staging_module.tokens_and_cost(table[:0]) == (0, 0.0)


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
    blocks = [rows.settled_block({}, 0, [5], rows.END), done, bad(0, 4)]
    counts = {"ingest": 5, "preprocess": 4, "infer": 0, "write": 2}
    other = make_run(tmp_path / "other")
    assert write_part(other, SINK, "a-0", *blocks).rows == counts
    record, parts = write(tmp_path, blocks), make_run(tmp_path).parts
    assert {stage: measures["rows"] for stage, measures in record.stages.items()} == counts
    assert record.left_out == ()
    assert [tuple(row.values()) for row in record.ranges.to_pylist()] == [
        (0, 0, 1, rows.LIVE),
        (0, 2, 3, rows.LIVE),
        (0, 1, 2, rows.FILTERED),
        (0, 3, 5, rows.QUARANTINED),
        (0, 0, 5, rows.END),
    ]
    assert staged_parts.read_part(parts, record, ["row_id", "x", "__row"]).to_pydict() == {
        "row_id": ["0.csv#0", "0.csv#2"],
        "x": [1, 3],
        "__row": [0, 2],
    }
    errors = staged_parts.read_errors(parts, [record], row_ranges.merge([record.ranges])).to_pylist()
    assert [(e["row_id"], e["stage"], e["error_type"], e["error_message"]) for e in errors] == [
        ("0.csv#3", "preprocess", "ValueError", "no"),
        ("0.csv#4", "ingest", "RowError", "bad"),
    ]


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
    with pytest.raises(ContractError, match=r"sink\.partition_column"):
        write(tmp_path, [dated])
    assert write(tmp_path, [dated], partition="all", partition_column="day").rows == 1


def test_types_that_change_from_block_to_block_are_named(tmp_path: Path):
    with pytest.raises(ContractError, match=r"x.*int64.*string"):
        write(tmp_path, [block(0, 0, 1, x=[1]), block(1, 0, 1, x=["a"])])


def python_steps(tmp_path: Path, count: int) -> int:
    """Read a table of so many rows, run a vectorised model, write a part, and count the bytecodes of this package."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        nonlocal steps
        steps += event == "opcode"
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return trace if frame.f_globals["__name__"].startswith("overnight") else None

    folder = tmp_path / f"{count}"
    folder.mkdir()
    table = pa.table({"x": np.arange(count) / 7, "n": range(count), "text": [f"t{row}" for row in range(count)]})
    pq.write_table(table, folder / "table.parquet")
    source, run = Parquet(path=str(folder)), make_run(folder)
    units = source.units(list(source.files("all")))
    model = partial(outcome_of, lambda batch: {"y": batch["x"] * 2}, stage="infer", what="model")
    sys.settrace(trace)
    try:
        [rows_read] = source.rows(units, None)
        done = apply.apply(rows.measured(rows_read, np.arange(count), "ingest", 1.0, 8), "infer", model)
        write_part(run, SINK, f"{run.attempt}-000000", done)
    finally:
        sys.settrace(None)
    assert staged_parts.read_records(run.parts)[0].rows == count
    return steps


def test_a_row_of_a_table_takes_no_python_of_its_own_from_its_file_to_its_part(tmp_path: Path) -> None:
    python_steps(tmp_path, 2000)  # the first time imports modules
    assert abs(python_steps(tmp_path, 8000) - python_steps(tmp_path, 4000)) < 1000


class DiesOnce(ParquetSink):
    """A sink whose first writer is killed in the middle of a part."""

    mark: str

    def take(self, table: pa.Table) -> None:
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().take(table)


def test_a_part_whose_writer_is_killed_is_written_again_with_each_row_once(ray_session: None, tmp_path: Path) -> None:
    run = replace(make_run(tmp_path), token=99)  # writers keep the address of the supervisor, which ends with the body
    sink = DiesOnce(path="-", rows_per_part=10, mark=str(tmp_path / "died"))
    with supervisor.supervised(run):
        staging = stage(run, sink, [block(0, first, 5, x=range(5)) for first in range(0, 30, 5)])
        incidents = supervisor.snapshot(run).incidents
    records = staged_parts.read_records(run.parts)
    assert (tmp_path / "died").exists()
    sentence = "the process that wrote a part died, and the part was written again"
    assert [(one["stage"], one["what"], one["times"]) for one in incidents] == [("write", sentence, 1)]
    assert [record.rows for record in records] == [10, 10, 10]
    written = pa.concat_tables([staged_parts.read_part(run.parts, record, ["__row"]) for record in records])
    assert sorted(written["__row"].to_pylist()) == list(range(30))
    assert staging.staged.rows["write"] == 30


def stage(run: Run, sink: ParquetSink, blocks: list[pa.Table]) -> Staging:
    """Stage blocks by reference."""
    staging = Staging(run, sink)
    for table in blocks:
        staging.add(ray.put(table), len(table), table.nbytes)
    staging.finish()
    return staging


@pytest.mark.parametrize(
    ("settings", "largest", "first_seconds", "parts"),
    [
        ({"rows_per_part": 7}, 2**30, 1e-9, [8, 8, 8, 6]),
        ({"seconds_per_part": 1e-9}, 2**30, 60.0, [2] * 15),
        ({}, 2**30, 60.0, [30]),
        ({}, 2**30, 1e-9, [2, 28]),
        ({}, 1.0, 60.0, [2] * 15),
    ],
    ids=["by rows", "by seconds", "all as one", "the first one early", "by bytes"],
)
def test_a_part_is_written_when_it_is_due(
    ray_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    largest: float,
    first_seconds: float,
    parts: list[int],
) -> None:
    monkeypatch.setattr(staging_module, "BYTES_A_PART", largest)
    monkeypatch.setattr(staging_module, "SECONDS_FIRST", first_seconds)
    run, sink = make_run(tmp_path), ParquetSink(path="-", **settings)
    staging = stage(run, sink, [block(0, first, 2, x=[first, first + 1]) for first in range(0, 30, 2)])
    records = staged_parts.read_records(run.parts)
    assert [record.rows for record in records] == parts
    merged = row_ranges.merge([record.ranges for record in records])
    assert row_ranges.rows_in_state(merged, rows.LIVE) == staging.staged.rows["write"] == 30
    assert staging.times is not None


def test_a_part_that_is_due_is_written_although_no_further_block_arrives(ray_session: None, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    staging = Staging(run, ParquetSink(path="-", seconds_per_part=0.3))
    limit = time.monotonic() + 60
    for first in (0, 2):
        staging.add(ray.put(block(0, first, 2)), 2, 100)
        while len(staged_parts.read_records(run.parts)) < first // 2 + 1 and time.monotonic() < limit:
            staging.begin_if_due()
    assert [record.rows for record in staged_parts.read_records(run.parts)] == [2, 2]
    staging.finish()
    assert staging.staged.rows["write"] == 4
    assert len(staged_parts.read_records(run.parts)) == 2


def test_an_error_of_writing_reaches_the_stream_with_its_stage(ray_session: None, tmp_path: Path) -> None:
    unlike = [block(0, 0, 1, x=[1]), block(1, 0, 1, x=["a"])]
    with pytest.raises(Exception, match=r"x.*int64.*string") as raised:
        stage(make_run(tmp_path), SINK, unlike)
    assert explain(raised.value, "infer").stage == "write"
