"""Publishing plain Parquet: every staged row once, and no reader ever sees a mixture."""

import os
import random
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tasks import rows, settled, staging
from tasks.run_directory import Run
from tasks.storage import Location
from tasks.write.parquet import ParquetSink
from tests.tasks.runs import make_run

MEASURES: staging.Measures = {}


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
    ranges = settled.ranges_of(
        rows.with_hidden(pa.table({"x": numbers}), np.zeros(len(numbers), int), np.array(numbers))
    )
    staging.write_part(run.parts, name, table, staging.DETAILS.empty_table(), ranges, MEASURES, "zstd")


def publish(run: Run, sink: ParquetSink, old: list[str]) -> tuple[list[str], int]:
    records = staging.read_records(run.parts)
    names, count, _ = sink.prepare(run, records, settled.merge([record.ranges for record in records]))
    sink.switch(run, names)
    sink.discard(run, [f"{run.partition_directory}/{name}".lstrip("/") for name in old])
    return names, count


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
    assert names == os.listdir(run.target.uri)


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


@pytest.mark.parametrize("kind", ["disk", "s3"])
@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
def test_a_republished_partition_holds_the_new_rows_only_and_leaves_nothing_else(
    kind: str, partition: str, tmp_path: Path, ray_session: None, request: pytest.FixtureRequest
):
    place = str(tmp_path)
    if kind == "s3":
        bucket = f"bucket-{uuid.uuid4().hex[:8]}"
        request.getfixturevalue("s3").create_bucket(Bucket=bucket)
        place = f"s3://{bucket}/deep"
    old: list[str] = []
    for round_number in range(3):
        run = make_run(place, partition, generation=f"g{round_number}", attempt=f"t-{round_number}")
        sink = ParquetSink(path=f"{place}/out")
        stage(run, "attempt-000000", list(range(round_number + 2)), f"round {round_number}")
        old, count = publish(run, sink, old)
        assert count == round_number + 2
        files = [file.path for file in run.target.files((".parquet",))]
        assert [row["value"] for row in published(run)] == [f"round {round_number}"] * count
        assert files == old
        assert [name for name in run.sink.names() if name.startswith("_publishing")] == []


def test_no_row_to_publish_empties_the_partition(tmp_path: Path, ray_session: None):
    run = make_run(tmp_path)
    stage(run, "attempt-000000", [0], "v")
    names, _ = publish(run, ParquetSink(path=str(tmp_path / "out")), [])
    empty = make_run(tmp_path, generation="later")
    assert publish(empty, ParquetSink(path=str(tmp_path / "out")), names) == ([], 0)
    assert empty.target.names() == []


def test_what_overnight_did_not_publish_survives_the_exchange(tmp_path: Path, ray_session: None):
    run, sink = make_run(tmp_path), ParquetSink(path=str(tmp_path / "out"))
    stage(run, "attempt-000000", [0], "v")
    names, _ = publish(run, sink, [])
    (run.target / "somebody-elses.parquet").write_bytes(b"theirs")
    (run.target / "_SUCCESS").write_bytes(b"")
    again = make_run(tmp_path, generation="later")
    stage(again, "attempt-000000", [0], "w")
    new, _ = publish(again, sink, names)
    assert set(run.target.names()) == {*new, "somebody-elses.parquet", "_SUCCESS"}
    assert (run.target / "somebody-elses.parquet").read_bytes() == b"theirs"


def test_a_reader_never_sees_a_mixture_while_the_partition_is_replaced(tmp_path: Path):
    """Fifty replacements under a reader that lists and reads in a loop; it may have to list again, and no more."""
    sink, target = ParquetSink(path=str(tmp_path / "out")), tmp_path / "out" / "date=2026-01-02"
    stop, seen, mixtures, gaps = threading.Event(), set(), [], []

    def read() -> None:
        while not stop.is_set():
            if not target.is_dir():
                gaps.extend(seen)
                continue
            names = os.listdir(target)
            try:
                versions = [pq.read_table(target / name)["version"][0].as_py() for name in names]
            except FileNotFoundError:
                continue
            if len(set(versions)) > 1 or len(versions) not in {0, 3}:
                mixtures.append(versions)
            seen.update(versions)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        old = replace_fifty_times(sink, tmp_path)
    finally:
        stop.set()
        reader.join()
    assert mixtures == []
    assert gaps == []
    assert len(seen) > 3
    assert sorted(os.listdir(target)) == old


def replace_fifty_times(sink: ParquetSink, tmp_path: Path) -> list[str]:
    old: list[str] = []
    for version in range(50):
        run = make_run(tmp_path, generation=f"g{version:03d}", attempt=f"t-{version}")
        names = [f"part-{run.generation}-{version}-{n:05d}.parquet" for n in range(3)]
        for name in names:
            content = staging.parquet_bytes(pa.table({"version": [version]}), "zstd")
            place = Location(f"{tmp_path}/out/_publishing-2026-01-02-{run.attempt}")
            (place / f"{name}.part").write_bytes(content)
        sink.switch(run, names)
        sink.discard(run, [f"{run.partition_directory}/{name}" for name in old])
        old = names
    return old
