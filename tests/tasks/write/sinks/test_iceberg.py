"""Iceberg tables: one snapshot a publish, time travel, and several that commit at once."""

import os
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import read_json
from overnight.tasks.write.sinks.iceberg import IcebergSink
from tests.contracts.sinks.publications import numbered, publish_parts

STORE: dict[str, str] = {}
pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path)
    bucket = f"iceberg-{uuid.uuid4().hex[:8]}"
    request.getfixturevalue("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/deep"


@pytest.fixture(autouse=True)
def _store(s3: Any) -> None:
    STORE.update({"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"})


@pytest.fixture
def sink(tmp_path: Path) -> IcebergSink:
    return IcebergSink(path="-", catalog=f"sqlite:///{tmp_path}/catalog.db", table="results.x")


def open_table(sink: IcebergSink) -> Table:
    """As anybody would."""
    return SqlCatalog("default", uri=sink.catalog, **STORE).load_table(sink.table)


def rows(sink: IcebergSink, snapshot: int | None = None) -> dict[str, list[int]]:
    """The column x by date (or `all`)."""
    published = open_table(sink).scan(snapshot_id=snapshot).to_arrow()
    key = "date::VARCHAR" if "date" in published.column_names else "'all'"
    connection = duckdb.connect()
    connection.register("published", published)
    return dict(connection.execute(f"SELECT {key}, list(x ORDER BY x) FROM published GROUP BY 1").fetchall())


def test_a_republished_partition_is_replaced_in_one_snapshot_and_others_stay(place: str, sink: IcebergSink) -> None:
    publish_parts(numbered(place, 1, "2026-01-01"), sink, {"x": [1, 2]})
    publish_parts(numbered(place, 2, "2026-01-02"), sink, {"x": [3]}, {"x": [4]})
    before = open_table(sink)
    files = publish_parts(numbered(place, 3, "2026-01-02"), sink, {"x": [5]})
    table = open_table(sink)
    assert len(table.metadata.snapshots) == len(before.metadata.snapshots) + 1
    assert rows(sink) == {"2026-01-01": [1, 2], "2026-01-02": [5]}
    assert rows(sink, before.metadata.current_snapshot_id) == {"2026-01-01": [1, 2], "2026-01-02": [3, 4]}
    assert {task.file.file_path.split("/out/")[1] for task in table.scan().plan_files()} >= set(files)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    about = snapshot.summary.additional_properties
    assert [about[f"overnight.{name}"] for name in ("job", "partition", "generation", "attempt")] == [
        "job", "2026-01-02", "g003", "t-000003",
    ]  # fmt: skip
    receipt = read_json(numbered(place, 3).ledger / "receipt.json")
    assert receipt is not None
    assert receipt["table_version"] == snapshot.snapshot_id


def test_rows_of_somebody_else_another_layout_and_another_place_are_refused(tmp_path: Path, sink: IcebergSink) -> None:
    run = numbered(tmp_path, 1)
    files = publish_parts(run, sink, {"x": [1]})
    assert sink.foreign(run, set(files)) == []
    assert sink.foreign(run, set()) == files
    with pytest.raises(CheckFailed, match="partitioned by nothing, found one by"):
        sink.foreign(replace(run, partition="all"), set())
    with pytest.raises(CheckFailed, match="expected the table in"):
        sink.foreign(numbered(tmp_path / "elsewhere", 1), set())


def test_partitions_that_are_published_at_once_all_succeed_the_first_of_the_table_too(
    tmp_path: Path, sink: IcebergSink
) -> None:
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            run = numbered(tmp_path, number, f"2026-01-{number:02d}")
            publish_parts(run, sink, {"x": [number], f"c{number}": ["a"]})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(sink) == {f"2026-01-{number:02d}": [number] for number in range(1, 4)}
    assert {"c1", "c2", "c3"} <= {field.name for field in open_table(sink).schema().fields}
