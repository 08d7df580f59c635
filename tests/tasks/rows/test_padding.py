"""Rows a thousand times as large as the sample's: what is handed on together stays bounded, and no row is lost."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray.data

from overnight.tasks.infer.handing_on import handed_on
from overnight.tasks.rows import blocks
from overnight.tasks.rows.padding import LARGEST_BLOCK_BYTES, Share, padding_of, without_padding
from overnight.tasks.rows.part_size import BYTES_A_PART, PartSize
from overnight.tasks.rows.rebatch import cut
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream.staging_datasink import StagingDatasink
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

SMALL, LARGE = 300, 300_000  # bytes of a row


def block(first: int, count: int, size: int) -> pa.Table:
    texts = ["x" * size] * count
    names = [f"a#{row}" for row in range(first, first + count)]
    return source_block(0, first, pa.table({"row_id": names, "text": texts}))


def test_rows_that_grow_behind_the_sample_count_as_many() -> None:
    share = Share(PartSize(None, 60.0).count(0.001, SMALL), BYTES_A_PART)
    pieces = list(share.padded([block(0, 400, LARGE)]))
    assert max(piece.nbytes for piece in pieces) < 1.2 * LARGEST_BLOCK_BYTES
    counted = sum(len(piece) for piece in pieces) / share.rows
    assert counted == pytest.approx(400 * LARGE / BYTES_A_PART, rel=0.05)
    assert pa.concat_tables(map(without_padding, pieces))["row_id"].to_pylist() == [f"a#{row}" for row in range(400)]


def test_rows_that_take_a_hundred_times_the_sample_s_seconds_count_as_many() -> None:
    share = Share(PartSize(None, 60.0).count(0.001, SMALL), BYTES_A_PART, {"infer": 60.0, "preprocess": 600.0})
    rows = block(0, 500, SMALL)
    timely = blocks.measured(rows, np.arange(500), "infer", 0.5, 0)
    assert list(share.padded([timely])) == [timely]
    [slow] = share.padded([blocks.measured(rows, np.arange(500), "infer", 30.0, 0)])
    assert len(slow) == share.rows / 2
    [slower] = share.padded([blocks.measured(rows, np.arange(500), "infer", 100.0, 0)])
    assert len(slower) == share.rows
    [both] = share.padded([blocks.measured(timely, np.arange(500), "preprocess", 150.0, 0)])
    assert len(both) == pytest.approx(share.rows * (0.5 / 60 + 150 / 600), abs=2), "the seconds of all stages count"


def test_a_task_that_lasts_passes_on_what_it_has_as_a_full_block() -> None:
    share = Share(1_000, BYTES_A_PART, longest=0, full=10_000)
    pieces = list(share.padded(block(first, 4, SMALL) for first in range(0, 12, 4)))
    assert [(len(piece), padding_of(piece)) for piece in pieces] == [(1_000, 996)] * 3
    assert all(10_000 < piece.nbytes < 1.5 * (10_000 + 1_000 * 100) for piece in pieces)
    assert pa.concat_tables(map(without_padding, pieces))["row_id"].to_pylist() == [f"a#{row}" for row in range(12)]


def test_one_row_of_a_part_s_bytes_is_a_part() -> None:
    [piece] = Share(1_000, 2**20).padded([block(0, 1, 5 * 2**20)])
    assert (len(piece), padding_of(piece)) == (1_000, 999)


def test_a_block_is_cut_to_so_many_bytes_or_one_row() -> None:
    pieces = list(cut(block(0, 7, 1_000), 2_500))
    assert [len(piece) for piece in pieces] == [1, 2, 2, 2]
    assert [len(piece) for piece in cut(block(0, 2, 1_000), 10)] == [1, 1]


def test_a_writer_waits_for_a_part_s_bytes_and_not_for_its_rows(ray_session: None, tmp_path: Path) -> None:
    run, share = make_run(tmp_path), Share(5_000, 2**20)
    tables = [*handed_on([block(0, 100, SMALL)], share, "write", run)]
    for first in range(100, 140, 4):
        tables += handed_on([block(first, 4, LARGE)], share, "write", run)
    sink = StagingDatasink(run, "zstd", share.rows, ParquetSink(path=str(tmp_path / "out")))
    ray.data.from_arrow(tables).write_datasink(sink, ray_remote_args={"num_cpus": 0})
    records = staged_parts.read_records(run.parts)
    assert len(records) > 8  # 12 MB of rows, in parts of 1 MiB and the block that fills it
    settled = row_ranges.merge([record.ranges for record in records])
    assert np.sum(settled["stop"].to_numpy() - settled["start"].to_numpy()) == 140
    assert set(settled["state"].to_pylist()) == {blocks.LIVE}
