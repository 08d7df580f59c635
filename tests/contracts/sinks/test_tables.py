"""Tables of which every publish is a version, and publishes of several days at once."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from overnight.tasks.state.run import read_json
from tests.contracts.sinks.adapters import ADAPTERS, POSTGRESQL, Adapter
from tests.contracts.sinks.publications import create_schema, numbered, publish_parts, visible
from tests.contracts.sinks.suite import SINKS

NO_VERSIONS = {
    **dict.fromkeys(("parquet", "jsonl", "csv", "images"), "a directory of files has no versions"),
    "sql": "a database has no versions",
}
FIRST, SECOND = "2026-01-01", "2026-01-02"


class Version(NamedTuple):
    """A version of a table as anybody opens it, with nothing but the environment: what it has, and of which run."""

    number: int
    count: int  # of all versions
    rows: pa.Table
    about: list[str]


def delta_version(place: str, sink: Any, number: int | None) -> Version:
    table = DeltaTable(f"{place}/out", version=number, storage_options={"allow_http": "true"})
    about = table.history(1)[0].get("overnight", {})
    return Version(table.version(), table.version(), table.to_pyarrow_table(), [*about.values()])


def iceberg_version(place: str, sink: Any, number: int | None) -> Version:
    store = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    table = SqlCatalog("default", uri=sink.catalog, **store).load_table(sink.table)
    snapshot: Any = table.current_snapshot()
    about = [*snapshot.summary.additional_properties.values()]
    rows = table.scan(snapshot_id=number).to_arrow()
    return Version(snapshot.snapshot_id, len(table.metadata.snapshots), rows, about)


def lance_version(place: str, sink: Any, number: int | None) -> Version:
    table = lance.dataset(f"{place}/out", version=number, storage_options={"allow_http": "true"})
    about = table.read_transaction(table.version).transaction_properties
    return Version(table.version, table.version, table.to_table(), [*about.values()])


OPENED = {"delta": delta_version, "iceberg": iceberg_version, "lance": lance_version}


def by_day(rows: pa.Table) -> dict[str, list[int]]:
    days = rows.group_by("date").aggregate([("x", "list")])
    return {str(row["date"]): sorted(row["x_list"]) for row in days.to_pylist()}


def bucket(s3: Any) -> str:
    name = f"table-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    return f"s3://{name}/deep"


@SINKS.promise("a publish is one version that names its run, and the version before reads as it was", **NO_VERSIONS)
@pytest.mark.parametrize("store", ["disk", "s3"])
def test_a_publish_is_one_version_of_the_table(leaf: Adapter, store: str, s3: Any, tmp_path: Path) -> None:
    place, sink = bucket(s3) if store == "s3" else str(tmp_path), leaf.sink(tmp_path)

    def opened(number: int | None = None) -> Version:
        return OPENED[leaf.kind](place, sink, number)

    publish_parts(numbered(place, 1, FIRST), sink, {"x": [1, 2]})
    publish_parts(numbered(place, 2, SECOND), sink, {"x": [3]}, {"x": [4]})
    before = opened()
    publish_parts(numbered(place, 3, SECOND), sink, {"x": [5]})
    after = opened()
    assert after.count == before.count + 1
    assert by_day(after.rows) == {FIRST: [1, 2], SECOND: [5]}
    assert by_day(opened(before.number).rows) == {FIRST: [1, 2], SECOND: [3, 4]}
    assert {"job", SECOND, "g003", "t-000003"} <= set(after.about)
    receipt = read_json(numbered(place, 3).ledger / "receipt.json") or {}
    assert receipt.get("table_version") == (None if leaf.kind == "delta" else after.number)


@SINKS.promise("first publishes of several days at once all succeed, each with a column of its own")
def test_first_publishes_of_several_days_at_once_all_succeed(leaf: Adapter, tmp_path: Path) -> None:
    publish_at_once(leaf, tmp_path, tmp_path)


@pytest.mark.parametrize("kind", OPENED)
def test_first_publishes_on_s3_at_once_all_succeed(kind: str, s3: Any, tmp_path: Path) -> None:
    publish_at_once(ADAPTERS[kind], bucket(s3), tmp_path)


def test_first_publishes_to_postgresql_at_once_all_succeed(postgres: str, tmp_path: Path) -> None:
    create_schema(POSTGRESQL.sink(tmp_path))
    publish_at_once(POSTGRESQL, tmp_path, tmp_path)


def publish_at_once(leaf: Adapter, place: Path | str, folder: Path) -> None:
    """Four days, which all would create the table, and then change its columns."""
    sink = leaf.sink(folder)
    runs = [numbered(place, number, f"2026-01-{number:02d}") for number in range(1, 5)]

    def one(number: int) -> None:
        publish_parts(runs[number], sink, {"x": [number], f"c{number}": [number], **leaf.beside(1)})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))
    assert [visible(run, sink) for run in runs] == [[0], [1], [2], [3]]
    if leaf.kind in OPENED:
        names = OPENED[leaf.kind](str(place), sink, None).rows.column_names
        assert {"c0", "c1", "c2", "c3"} <= set(names)
