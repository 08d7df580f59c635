"""Delta tables: one commit a publish, time travel, and several that commit at once."""

import subprocess
import sys
import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from overnight.tasks.errors import CheckFailed
from overnight.tasks.write.sinks.delta import DeltaSink
from tests.contracts.sinks.publications import numbered, publish_parts
from tests.tasks.runs import make_run

SINK = DeltaSink(path="-")


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path)
    bucket = f"delta-{uuid.uuid4().hex[:8]}"
    request.getfixturevalue("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/deep"


def open_table(place: str, version: int | None = None) -> DeltaTable:
    """As anybody would, with nothing but the environment."""
    return DeltaTable(f"{place}/out", version=version, storage_options={"allow_http": "true"})


def rows(table: DeltaTable) -> dict[str, list[int]]:
    """The column x by date (or `all`), as DuckDB sees it."""
    published = table.to_pyarrow_dataset()
    key = "date::VARCHAR" if "date" in published.schema.names else "'all'"
    connection = duckdb.connect()
    connection.register("published", published)
    return dict(connection.execute(f"SELECT {key}, list(x ORDER BY x) FROM published GROUP BY 1").fetchall())


def test_a_republished_partition_is_replaced_in_one_commit_and_others_stay(place: str, ray_session: None):
    publish_parts(numbered(place, 1, "2026-01-01"), SINK, {"x": [1, 2]})
    publish_parts(numbered(place, 2, "2026-01-02"), SINK, {"x": [3]}, {"x": [4]})
    before = open_table(place).version()
    files = publish_parts(numbered(place, 3, "2026-01-02"), SINK, {"x": [5]})
    table = open_table(place)
    assert table.version() == before + 1
    assert rows(table) == {"2026-01-01": [1, 2], "2026-01-02": [5]}
    assert rows(open_table(place, before)) == {"2026-01-01": [1, 2], "2026-01-02": [3, 4]}
    assert {uri.split("/out/")[1] for uri in table.file_uris()} >= set(files)
    assert table.count() == 3
    about = table.history(1)[0]["overnight"]
    assert (about["job"], about["partition"], about["generation"], about["attempt"]) == (
        "job", "2026-01-02", "g003", "t-000003",
    )  # fmt: skip


def test_rows_that_somebody_else_put_into_the_partition_are_foreign(tmp_path: Path, ray_session: None):
    run = numbered(tmp_path, 1, "2026-01-02")
    files = publish_parts(run, SINK, {"x": [1]})
    assert SINK.foreign(run, set(files)) == []
    table = pa.table({"row_id": ["b", "c"], "x": [8, 9], "date": pa.array(["2026-01-02", "2026-01-03"])})
    write_deltalake(tmp_path / "out", table.set_column(2, "date", table["date"].cast(pa.date32())), mode="append")
    (theirs,) = SINK.foreign(run, set(files))
    assert theirs.startswith("date=2026-01-02/")
    assert theirs not in files


def test_a_compacted_partition_is_still_ours(tmp_path: Path, ray_session: None):
    run = numbered(tmp_path, 1, "2026-01-02")
    files = publish_parts(run, DeltaSink(path="-", target_file_size=1), {"x": [1]}, {"x": [2]})
    table = open_table(str(tmp_path))
    assert table.optimize.compact()["numFilesAdded"] == 1
    assert SINK.foreign(run, set(files)) == []
    files = publish_parts(numbered(tmp_path, 2, "2026-01-02"), SINK, {"x": [3]})
    assert rows(open_table(str(tmp_path))) == {"2026-01-02": [3]}


def test_a_table_that_is_partitioned_otherwise_is_refused(tmp_path: Path):
    write_deltalake(tmp_path / "out", pa.table({"x": [1], "ds": ["a"]}), partition_by=["ds"])
    with pytest.raises(CheckFailed, match=r"partitioned by \['date'\], found one by \['ds'\]"):
        SINK.foreign(make_run(tmp_path), set())


def test_vacuum_takes_replaced_files_and_nothing_else(tmp_path: Path, ray_session: None):
    old = publish_parts(numbered(tmp_path, 1), SINK, {"x": [1]})
    publish_parts(numbered(tmp_path, 2), SINK, {"x": [2]})
    for file in old:
        assert (tmp_path / "out" / file).exists()
    state = sorted(path for path in (tmp_path / "out/_overnight").rglob("*"))
    table = open_table(str(tmp_path))
    removed = table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert sorted(removed) == sorted(old)
    assert sorted(path for path in (tmp_path / "out/_overnight").rglob("*")) == state
    assert rows(open_table(str(tmp_path))) == {"2026-01-02": [2]}


def test_files_that_were_committed_are_never_discarded(tmp_path: Path, ray_session: None):
    run = numbered(tmp_path, 1)
    files = publish_parts(run, SINK, {"x": [1]})
    SINK.discard(run)
    assert all((tmp_path / "out" / file).exists() for file in files)


COMMITTING = """
import os, sys

import pyarrow.parquet as pq

from overnight.tasks.write.tables import delta as delta_table
from overnight.tasks.write.merge.merge_parts import MergedFile
from tests.contracts.sinks.publications import holding, numbered

go, start = os.pipe()
children = []
for number in range(1, 5):
    children.append(os.fork())
    if not children[-1]:
        os.close(start)
        os.read(go, 1)
        for turn in range(3):
            run = numbered(sys.argv[1], 10 * number + turn, f"2026-01-{number:02d}")
            file = run.target / f"{turn}.parquet"
            with holding(run) as held:
                merged = MergedFile(file.name, file, 1, len(file.read_bytes()), {})
                delta_table.commit(held, [merged], pq.read_schema(file.open()))
        os._exit(0)
os.close(start)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_partitions_that_are_published_at_once_all_succeed_the_first_of_the_table_too(place: str):
    """Four processes, three commits each, every one with a column of its own: all of them change the table's schema."""
    for number in range(1, 5):
        for turn in range(3):
            target = make_run(place, f"2026-01-{number:02d}").target
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"x": [10 * number + turn], f"c{number}{turn}": ["a"]}), sink)
            (target / f"{turn}.parquet").write_bytes(sink.getvalue().to_pybytes())
    done = subprocess.run([sys.executable, "-c", COMMITTING, place], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    table = open_table(place)
    assert rows(table) == {f"2026-01-{number:02d}": [10 * number + 2] for number in range(1, 5)}
    assert table.version() == 12
    names = {field.name for field in table.schema().fields}
    assert names == {"x", "date"} | {f"c{number}{turn}" for number in range(1, 5) for turn in range(3)}
