"""Delta tables as other people write and change them."""

import json
import random
import shutil
import uuid
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.state.manifest import digest, read_manifest, read_schema, read_snapshot
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import storage_options
from tests.tasks.ingest.conftest import RESIZED, Read, overwritten, read_all, rewritten

DAYS = [date(2026, 1, 1), date(2026, 1, 2)]


def rows(first: int, count: int, day: date | None = None) -> pa.Table:
    numbers = range(first, first + count)
    columns: dict[str, Any] = {"n": numbers, "text": [f"row {n}" for n in numbers]}
    if day:
        columns["day"] = pa.array([day] * count, pa.date32())
    return pa.table(columns)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three rows of the first of January, four of the second, in a version each."""
    place = str(tmp_path / "table")
    for number, day in enumerate(DAYS):
        write_deltalake(place, rows(number * 10, 3 + number, day), partition_by=["day"], mode="append")
    return place


def read(source: Delta, partition: str = "all") -> Read:
    units = source.units(list_inputs(source, partition))
    return read_all(source, units)


def test_a_table_s_rows_come_with_the_columns_that_it_is_partitioned_by(table: str) -> None:
    found = read(Delta(path=table))
    assert sorted((row["n"], row["text"], row["day"]) for row in found.good.values()) == [
        (n, f"row {n}", DAYS[n // 10]) for n in (0, 1, 2, 10, 11, 12, 13)
    ]
    [name] = {name for name, row in found.good.items() if row["n"] == 11}
    assert name.startswith("day=2026-01-02/part-")
    assert name.endswith(".parquet#1")


def test_only_the_files_of_a_partition_are_inputs(table: str) -> None:
    source = Delta(path=table, where={"day": "{partition}"})
    assert source.is_dated
    for partition, expected in (("2026-01-01", [0, 1, 2]), ("2026-01-02", [10, 11, 12, 13])):
        assert sorted(read(source, partition).column("n")) == expected
    before = digest(list_inputs(source, "2026-01-01"))
    write_deltalake(table, rows(90, 1, DAYS[1]), mode="append")
    assert digest(list_inputs(source, "2026-01-01")) == before
    with pytest.raises(InputError, match="found none"):
        list_inputs(source, "2026-01-03")


def test_what_was_removed_from_the_table_is_not_read_though_its_file_is_there(table: str) -> None:
    DeltaTable(table).delete("n = 1")
    assert sorted(read(Delta(path=table)).column("n")) == [0, 2, 10, 11, 12, 13]


def test_the_version_is_chosen_once_and_read_until_the_end(table: str, tmp_path: Path) -> None:
    source, place = Delta(path=table), Location(str(tmp_path)) / "manifest"
    take_manifest(place, source, "all")
    new = rows(0, 1, DAYS[0]).append_column("new", pa.array(["x"]))
    write_deltalake(table, new, mode="overwrite", schema_mode="overwrite")
    assert read_snapshot(place) == "1"
    assert read_schema(place).names == ["n", "text", "day"]
    then = source.at(read_snapshot(place))
    assert sorted(read_all(then, read_manifest(place)[0]).column("n")) == [0, 1, 2, 10, 11, 12, 13]
    assert sorted(read(Delta(path=table, version=1)).column("n")) == [0, 1, 2, 10, 11, 12, 13]
    assert read(Delta(path=table)).column("new") == ["x"]


def test_columns_that_came_later_or_grew_wider_are_one_table(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    write_deltalake(place, pa.table({"n": pa.array([1], pa.int64())}))
    write_deltalake(place, pa.table({"n": pa.array([2]), "new": ["x"]}), mode="append", schema_mode="merge")
    found = read(Delta(path=place))
    assert sorted((row["n"], row["new"]) for row in found.good.values()) == [(1, None), (2, "x")]
    assert set(read(Delta(path=place, columns=["new"])).good.popitem()[1]) == {"row_id", "uri", "new"}
    with pytest.raises(InputError, match="no column old; the columns are n, new"):
        read(Delta(path=place, columns=["old"]))


@pytest.mark.parametrize("value", ["a b/c%", "ü", "{partition}", "x=1&y#z", "__HIVE_DEFAULT_PARTITION__?"])
def test_partitions_of_any_name_are_found(tmp_path: Path, value: str) -> None:
    place = str(tmp_path / "table")
    write_deltalake(place, pa.table({"n": [1, 2, 3], "p": [value, "other", None]}), partition_by=["p"])
    assert sorted((row["n"], row["p"]) for row in read(Delta(path=place)).good.values()) == [
        (1, value), (2, "other"), (3, None)
    ]  # fmt: skip
    if "{" not in value:
        assert read(Delta(path=place, where={"p": value})).column("n") == [1]


def test_a_table_on_s3_is_read(s3: Any) -> None:
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    place = f"s3://{bucket}/deep/table"
    write_deltalake(place, rows(0, 5, DAYS[0]), partition_by=["day"], storage_options=storage_options())
    found = read(Delta(path=place, where={"day": "{partition}"}), "2026-01-01")
    assert sorted(found.column("n")) == [0, 1, 2, 3, 4]
    assert all(row["uri"].startswith(f"{place}/day=2026-01-01/part-") for row in found.good.values())


def other_rows(path: Path) -> None:
    """Writes a table of other columns over a file."""
    pq.write_table(pa.table({"n": [7, 8, 9]}), path)


NO_PARQUET = "expected a whole Parquet file: "
NO_MAGIC = NO_PARQUET + "Parquet magic bytes not found in footer"
NO_THRIFT = "Couldn't deserialize thrift"
DAMAGES = RESIZED | {
    "of another table": (other_rows, "bytes, as listed, found "),
    "random": (rewritten(lambda content: random.Random(0).randbytes(len(content))), NO_MAGIC),
    "zeros": (rewritten(lambda content: bytes(len(content))), NO_MAGIC),
    "overwritten at its end": (rewritten(lambda content: overwritten(content, -4, None)), NO_MAGIC),
    "overwritten in its footer": (rewritten(lambda content: overwritten(content, -300, -8)), NO_PARQUET + NO_THRIFT),
    "overwritten inside": (rewritten(lambda content: overwritten(content, 4, 60)), "row group 0 of a Parquet file as "),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_was_broken_loses_its_rows_and_no_others_and_tells_why(
    table: str, damage: Callable[[Path], object], reason: str
) -> None:
    source = Delta(path=table)
    files = list_inputs(source, "all")
    units, path = source.units(files), Path(files[0].uri)
    damage(path)
    # Once it is listed a file's rows are known; a file that cannot be opened before is one row.
    names = [f"{files[0].path}#{n}" for n in range(3)]
    for found, lost in ((read_all(source, units), [names]), (read(source), [names, [files[0].path]])):
        assert list(found.bad) in lost
        [told] = set(found.bad.values())
        assert reason in told
        assert found.column("n") == [10, 11, 12, 13]


def test_what_is_no_table_or_no_version_of_it_says_so(table: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a Delta table, found none at"):
        list_inputs(Delta(path=str(tmp_path / "nowhere")), "all")
    with pytest.raises(InputError, match="in version 7"):
        list_inputs(Delta(path=table, version=7), "all")
    with pytest.raises(InputError, match="is partitioned by day, not by date"):
        list_inputs(Delta(path=table, where={"date": "x"}), "all")
    (Path(table) / "_delta_log" / f"{1:020d}.json").write_bytes(b"{no json")
    with pytest.raises(InputError, match=r"cannot read the Delta table at \S+: Kernel error: Json error: [^\n]*$"):
        list_inputs(Delta(path=table), "all")
    shutil.rmtree(Path(table) / "_delta_log")
    with pytest.raises(InputError, match="expected a Delta table, found none at"):
        list_inputs(Delta(path=table), "all")


Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(content: bytes) -> str:
    content += b"\0" * (-len(content) % 4)
    out = ""
    for i in range(0, len(content), 4):
        number = int.from_bytes(content[i : i + 4])
        out += "".join(Z85[number // 85**place % 85] for place in range(4, -1, -1))
    return out


def test_rows_that_a_deletion_vector_removed_are_never_read_in_silence(tmp_path: Path) -> None:
    place = tmp_path / "table"
    write_deltalake(str(place), rows(0, 5))
    [log] = (place / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    removed = (1681511377).to_bytes(4, "little") + BitMap64([1, 3]).serialize()
    for action in actions:
        if "protocol" in action:
            features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        if "add" in action:
            action["add"]["deletionVector"] = {
                "storageType": "i", "pathOrInlineDv": z85(removed), "sizeInBytes": len(removed), "cardinality": 2
            }  # fmt: skip
    log.write_text("\n".join(map(json.dumps, actions)) + "\n")
    with pytest.raises(InputError, match=r"1 files of the Delta table .* deletion vectors .* APPLY \(PURGE\)"):
        list_inputs(Delta(path=str(place)), "all")


def test_a_table_whose_columns_have_other_names_in_the_files_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "table"
    write_deltalake(str(place), rows(0, 5))
    [log] = (place / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            schema = json.loads(action["metaData"]["schemaString"])
            for i, field in enumerate(schema["fields"]):
                field["metadata"] = {"delta.columnMapping.id": i + 1, "delta.columnMapping.physicalName": f"col-{i}"}
            action["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    log.write_text("\n".join(map(json.dumps, actions)) + "\n")
    with pytest.raises(InputError, match="columns with other names in the files"):
        list_inputs(Delta(path=str(place)), "all")


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "more rows": ({"stats": '{"numRecords": 1000000000000}'}, ""),
    "fewer rows": ({"stats": '{"numRecords": 1}'}, ""),
    "rows below none": ({"stats": '{"numRecords": -5}'}, ""),
    "no statistics": ({"stats": "no json"}, ""),
    "more bytes": ({"size": 10**12}, "expected a file of 1,000,000,000,000 bytes, as listed, found "),
    "fewer bytes": ({"size": 1}, "expected a file of 1 bytes, as listed, found "),
    "bytes below none": ({"size": -1}, "expected a file of -1 bytes, as listed, found "),
    "another file": ({"path": "nowhere.parquet"}, "expected a file, as listed, found no file any more"),
}


@pytest.mark.parametrize("version", [0, 4], ids=["first", "behind"])
@pytest.mark.parametrize(("said", "reason"), LIES.values(), ids=LIES)
def test_a_log_that_lies_about_a_file_costs_it_alone_or_nothing(
    tmp_path: Path, said: dict[str, Any], reason: str, version: int
) -> None:
    for number in range(5):
        write_deltalake(tmp_path, rows(number * 10, 3), mode="append")
    log = tmp_path / f"_delta_log/{version:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text(
        "".join(
            json.dumps(action | {"add": action["add"] | said} if "add" in action else action) + "\n"
            for action in actions
        )
    )
    found = read(Delta(path=str(tmp_path)))
    lost = version * 10 if reason else None
    assert sorted(found.column("n")) == [n + k for n in range(0, 50, 10) if n != lost for k in range(3)]
    assert len(found.bad) == bool(reason)
    assert all(told.startswith(reason) for told in found.bad.values())
