"""Publishing plain Parquet: every staged row once, and no reader ever sees a mixture."""

import errno
import os
import random
import stat
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.write.sink import as_names, as_paths
from overnight.tasks.write.sinks import directory_swap
from overnight.tasks.write.sinks.parquet import ParquetSink
from tests.tasks.runs import make_run

MEASURES: staged_parts.Measures = {}


def stage(run: Run, name: str, numbers: list[int], value: str, pad: int = 0, **columns: Any) -> None:
    """A part that writes these rows of unit 0; `value` tells whose row it is."""
    table = pa.table(
        {
            "row_id": [f"a#{n}" for n in numbers],
            "value": [value] * len(numbers),
            "pad": pa.array([os.urandom(pad) for _ in numbers], pa.binary()),
            **columns,
            "__unit": pa.array([0] * len(numbers), pa.int64()),
            "__row": pa.array(numbers, pa.int64()),
        }
    )
    ranges = row_ranges.ranges_of(
        blocks.with_hidden(pa.table({"x": numbers}), np.zeros(len(numbers), int), np.array(numbers))
    )
    staged_parts.write_part(run.parts, name, table, staged_parts.DETAILS.empty_table(), ranges, MEASURES, "zstd")


def publish(run: Run, sink: ParquetSink, old: list[str]) -> tuple[list[str], int]:
    """The published files, which replace the `old`, as paths below the sink; all their rows."""
    records = staged_parts.read_records(run.parts)
    ready = sink.prepare(run, records, row_ranges.merge([record.ranges for record in records]))
    files = as_paths(run, [file.name for file in ready.files])
    sink.commit(run, ready, old)
    sink.finish(run, files, old)
    return files, ready.rows


def published(run: Run) -> list[dict[str, Any]]:
    filesystem, path = run.target.open_filesystem()
    found = ds.dataset(path, filesystem=filesystem, format="parquet", exclude_invalid_files=False)
    return sorted(found.to_table().to_pylist(), key=lambda row: int(row["row_id"].split("#")[1]))


def test_of_overlapping_parts_each_row_comes_from_the_lowest_name(tmp_path: Path, ray_session: None):
    run, sink = make_run(tmp_path), ParquetSink(path=str(tmp_path / "out"))
    draw = random.Random(5)
    expected: dict[int, str] = {}
    for part in range(6):
        numbers = sorted(draw.sample(range(100), 40))
        stage(run, f"attempt-{part:06d}", numbers, f"part {part}")
        for number in numbers:
            expected.setdefault(number, f"part {part}")
    names, count = publish(run, sink, [])
    assert {row["row_id"]: row["value"] for row in published(run)} == {f"a#{n}": v for n, v in expected.items()}
    assert count == len(expected)
    assert len(published(run)) == count
    assert names == [f"date=2026-01-02/{name}" for name in os.listdir(run.target.uri)]


def test_several_output_rows_of_one_source_row_stay_together(tmp_path: Path, ray_session: None):
    run = make_run(tmp_path)
    stage(run, "attempt-000000", [1, 1, 1, 2], "first")
    stage(run, "attempt-000001", [0, 1, 1, 1], "second")
    publish(run, ParquetSink(path=str(tmp_path / "out")), [])
    assert [(row["row_id"], row["value"]) for row in published(run)] == [
        ("a#0", "second"), ("a#1", "first"), ("a#1", "first"), ("a#1", "first"), ("a#2", "first"),
    ]  # fmt: skip


def test_files_have_about_the_target_size_and_one_schema_without_hidden_columns(tmp_path: Path, ray_session: None):
    run = make_run(tmp_path)
    for part in range(8):
        columns = {"late": pa.array([1.5] * 10)} if part > 5 else {"late": pa.nulls(10)}
        stage(run, f"attempt-{part:06d}", list(range(part * 10, part * 10 + 10)), "v", pad=10_000, **columns)
    publish(run, ParquetSink(path=str(tmp_path / "out"), target_file_size=250_000), [])
    files = sorted(Path(run.target.uri).iterdir())
    assert len(files) == 4
    assert all(file.stat().st_size < 250_000 for file in files)
    schemas = [pq.read_schema(file) for file in files]
    assert all(schema.equals(schemas[0]) for schema in schemas)
    assert schemas[0].names == ["row_id", "value", "pad", "late"]
    assert len(published(run)) == 80


@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
def test_what_overnight_did_not_publish_survives_the_exchange(partition: str, tmp_path: Path, ray_session: None):
    run, sink = make_run(tmp_path, partition), ParquetSink(path=str(tmp_path / "out"))
    stage(run, "attempt-000000", [0], "v")
    files, _ = publish(run, sink, [])
    (run.target / "somebody-elses.parquet").write_bytes(b"theirs")
    (run.target / "_SUCCESS").write_bytes(b"done")
    before = set(run.target.names()) - as_names(files)
    again = make_run(tmp_path, partition, generation="later")
    stage(again, "attempt-000000", [0], "w")
    new, _ = publish(again, sink, files)
    assert set(run.target.names()) == as_names(new) | before
    assert (run.target / "somebody-elses.parquet").read_bytes() == b"theirs"
    assert (run.target / "_SUCCESS").read_bytes() == b"done"
    assert not [path for path in run.sink.parent.names() if "publishing" in path]


def test_a_directory_that_is_exchanged_keeps_its_access_rights(tmp_path: Path, ray_session: None):
    run, sink = make_run(tmp_path, "all"), ParquetSink(path=str(tmp_path / "out"))
    os.makedirs(run.target.uri)
    os.chmod(run.target.uri, 0o2770)
    stage(run, "attempt-000000", [0], "v")
    publish(run, sink, [])
    assert stat.S_IMODE(os.stat(run.target.uri).st_mode) == 0o2770


def test_a_sink_behind_a_symbolic_link_stays_one(tmp_path: Path, ray_session: None):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    run, sink = make_run(tmp_path, "all"), ParquetSink(path=str(tmp_path / "out"))
    stage(run, "attempt-000000", [0], "v")
    files, _ = publish(run, sink, [])
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "real" / files[0]).exists()


@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
def test_where_nothing_can_be_exchanged_files_are_renamed(
    partition: str, tmp_path: Path, ray_session: None, monkeypatch: pytest.MonkeyPatch
):
    def refuse(first: str, second: str) -> None:
        raise OSError(errno.EINVAL, "no such flag on this filesystem")

    sink, old = ParquetSink(path=str(tmp_path / "out")), []
    monkeypatch.setattr(directory_swap, "swap", refuse)
    for number in range(2):
        run = make_run(tmp_path, partition, generation=f"g{number}")
        stage(run, "attempt-000000", list(range(number + 1)), f"round {number}")
        state = {name for name in run.target.names() if name[0] == "_"}
        old, _ = publish(run, sink, old)
        assert [row["value"] for row in published(run)] == [f"round {number}"] * (number + 1)
        assert set(run.target.names()) == as_names(old) | state
    assert not [path for path in run.sink.parent.names() if "publishing" in path]


def test_the_partition_all_is_published_below_a_directory_where_nothing_can_be_made(
    tmp_path: Path, ray_session: None, monkeypatch: pytest.MonkeyPatch
):
    """As where sink.path is a mount point: there is no place beside it from which a rename leads into it."""
    monkeypatch.setattr(directory_swap, "can_move", lambda directory, target: False)
    sink, old = ParquetSink(path=str(tmp_path / "out")), []
    for number in range(2):
        run = make_run(tmp_path, "all", generation=f"g{number}")
        stage(run, "attempt-000000", [0], f"round {number}")
        old, _ = publish(run, sink, old)
        assert [row["value"] for row in published(run)] == [f"round {number}"]
        assert set(run.target.names()) == {*old, "_overnight"}


def test_whether_a_directory_can_move_is_found_out_by_moving_one(tmp_path: Path):
    (tmp_path / "target").mkdir()
    assert directory_swap.can_move(f"{tmp_path}/.beside", f"{tmp_path}/target")
    assert not directory_swap.can_move(f"{tmp_path}/missing/.beside", f"{tmp_path}/target")
    other = next((mount for mount in ("/dev/shm", "/run") if os.stat(mount).st_dev != os.stat(tmp_path).st_dev), None)
    if other and os.access(other, os.W_OK):
        elsewhere = tempfile.mkdtemp(dir=other)
        try:
            assert not directory_swap.can_move(f"{elsewhere}/.beside", f"{tmp_path}/target")
            assert os.listdir(elsewhere) == []
        finally:
            os.rmdir(elsewhere)
    assert os.listdir(tmp_path / "target") == []


def test_replaced_files_stay_on_an_object_store_for_their_grace(tmp_path: Path, ray_session: None, s3: Any):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    sink = ParquetSink(path="-", grace_seconds=3)
    run = make_run(f"s3://{bucket}", generation="g0")
    stage(run, "attempt-000000", [0], "v")
    started = time.monotonic()
    old, _ = publish(run, ParquetSink(path="-", grace_seconds=60), [])
    assert time.monotonic() - started < 60, "there was nothing to wait for"
    again = make_run(f"s3://{bucket}", generation="g1")
    stage(again, "attempt-000000", [0], "w")
    thread = threading.Thread(target=publish, args=(again, sink, old))
    thread.start()
    both = False
    while thread.is_alive():
        both = both or len(run.target.names()) == 2
        time.sleep(0.1)
    assert both
    assert len(run.target.names()) == 1
    assert time.monotonic() - started > 3


def test_a_delta_table_is_foreign_to_plain_parquet(tmp_path: Path):
    run, sink = make_run(tmp_path), ParquetSink(path="-")
    assert sink.foreign(run, set()) == []
    (run.sink / "_delta_log" / "00000000000000000000.json").write_bytes(b"{}")
    assert sink.foreign(run, set()) == ["_delta_log"]
