"""What tables with versions promise besides: deletes, changed columns, blobs, filters, and the version of the run."""

import json
import re
from collections.abc import Callable
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.types import StringType
from pyroaring import BitMap64

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.ingest.sources.lance import Lance
from overnight.tasks.state.manifest import digest, read_manifest, read_snapshot
from overnight.tasks.storage.location import Location
from tests.contracts.sources.adapter import ROWS, Adapter
from tests.contracts.sources.adapters.iceberg import table_in
from tests.contracts.sources.reading import lines, listed, read_all
from tests.contracts.sources.suite import SOURCES

NO_TABLE = "the kind has no versions: what is there when the manifest is taken counts"
OTHERS = dict.fromkeys(SOURCES.kinds - {"delta", "lance", "iceberg"}, NO_TABLE)
Change = Callable[[Path], object]
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(content: bytes) -> str:
    content += b"\0" * (-len(content) % 4)
    words = [int.from_bytes(content[place : place + 4]) for place in range(0, len(content), 4)]
    return "".join(Z85[word // 85**digit % 85] for word in words for digit in range(4, -1, -1))


def rewrite_log(folder: Path, change: Callable[[dict[str, Any]], object], features: list[str]) -> None:
    """Change each action of the first version of a Delta table: deltalake does not write these features."""
    log = folder / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    for action in actions:
        change(action)
        if "protocol" in action:
            action["protocol"] = protocol
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def mark_deleted(folder: Path, rows: list[int] = [1, 3]) -> None:  # noqa: B006 - never changed
    """Mark rows of each file of the first version by a deletion vector."""
    vector = (1681511377).to_bytes(4, "little") + BitMap64(rows).serialize()
    about = {"storageType": "i", "pathOrInlineDv": _z85(vector), "sizeInBytes": len(vector), "cardinality": len(rows)}

    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["deletionVector"] = about

    rewrite_log(folder, change, ["deletionVectors"])


def map_columns(folder: Path, mode: str = "name") -> None:
    """Give the fields of the first version new names, also inside structs; the names in the files stay."""

    numbers = count(1)

    def renamed(kind: Any) -> Any:
        if not isinstance(kind, dict):
            return kind
        if kind["type"] == "struct":
            for field in kind["fields"]:
                mapped = {"delta.columnMapping.id": next(numbers), "delta.columnMapping.physicalName": field["name"]}
                field |= {"name": f"new {field['name']}", "type": renamed(field["type"]), "metadata": mapped}
        return kind | {key: renamed(kind[key]) for key in ("elementType", "keyType", "valueType") if key in kind}

    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            about = action["metaData"]
            about["configuration"] = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99"}
            about["schemaString"] = json.dumps(renamed(json.loads(about["schemaString"])))
            about["partitionColumns"] = [f"new {name}" for name in about["partitionColumns"]]

    rewrite_log(folder, change, ["columnMapping"])


def _iceberg(change: Callable[[Any], object]) -> Change:
    def changed(folder: Path) -> None:
        with table_in(folder).update_schema() as update:
            change(update)

    return changed


def _name_again(folder: Path) -> None:
    _iceberg(lambda update: update.delete_column("text"))(folder)
    _iceberg(lambda update: update.add_column("text", StringType()))(folder)


def _lance(change: Callable[[Any], object]) -> Change:
    return lambda folder: change(lance.dataset(folder / "table.lance"))


DELETES: dict[str, dict[str, Change]] = {
    "delta": {
        "rewritten": lambda folder: DeltaTable(folder).delete("n = 1"),
        "marked": mark_deleted,
        "all of a file marked": lambda folder: mark_deleted(folder, list(range(ROWS))),
    },
    "lance": {
        "marked": _lance(lambda table: table.delete("n in (1, 15)")),
        "all of a fragment": _lance(lambda table: table.delete("n < 10")),
        "updated": _lance(lambda table: table.update({"text": "'new'"}, where="n = 2")),
    },
    "iceberg": {"rewritten": lambda folder: table_in(folder).delete("n = 1 or n >= 10")},
}
COLUMNS: dict[str, dict[str, Change]] = {
    "delta": {
        "added": lambda folder: DeltaTable(folder).alter.add_columns([Field("more", PrimitiveType("integer"))]),
        "renamed": map_columns,
    },
    "lance": {
        "added": _lance(lambda table: table.add_columns({"double": "n * 2"})),
        "added without values": _lance(lambda table: table.add_columns(pa.field("more", pa.int32()))),
        "dropped": _lance(lambda table: table.drop_columns(["text"])),
        "renamed": _lance(lambda table: table.alter_columns({"path": "text", "name": "words"})),
        "of another type": _lance(lambda table: table.alter_columns({"path": "n", "data_type": pa.int32()})),
    },
    "iceberg": {
        "added": _iceberg(lambda update: update.add_column("more", StringType())),
        "dropped": _iceberg(lambda update: update.delete_column("text")),
        "renamed": _iceberg(lambda update: update.rename_column("text", "words")),
        "moved": _iceberg(lambda update: update.move_first("text")),
        "dropped and added again": _name_again,
    },
}


def two_files(leaf: Adapter, folder: Path) -> None:
    folder.mkdir()
    for place in range(2):
        leaf.write(folder, "", leaf.rows(ROWS, ROWS * place))


@SOURCES.promise("rows that the table's own library deletes or updates are read as it reads them", **OTHERS)
def test_deletes_and_updates_are_read(leaf: Adapter, tmp_path: Path):
    for name, change in DELETES[leaf.kind].items():
        two_files(leaf, tmp_path / name)
        source = leaf.source(tmp_path / name)
        before = digest(list_inputs(source, "all"))
        change(tmp_path / name)
        read = read_all(source)
        assert (lines(read.data()), read.bad) == (lines(leaf.expected(tmp_path / name)), {}), name
        assert digest(list_inputs(source, "all")) != before, "a published partition is stale now"


@SOURCES.promise("added, dropped, renamed, moved and retyped columns are those of the table's own library", **OTHERS)
def test_changes_of_columns_are_read(leaf: Adapter, tmp_path: Path):
    for name, change in COLUMNS[leaf.kind].items():
        two_files(leaf, tmp_path / name)
        change(tmp_path / name)
        read = read_all(leaf.source(tmp_path / name))
        assert (lines(read.data()), read.bad) == (lines(leaf.expected(tmp_path / name)), {}), name


@SOURCES.promise("the version of the manifest is read although the table goes on", **OTHERS)
def test_the_version_of_the_manifest_is_read(leaf: Adapter, tmp_path: Path):
    two_files(leaf, tmp_path / "table")
    source, place = leaf.source(tmp_path / "table"), Location(str(tmp_path)) / "manifest"
    take_manifest(place, source, "all")
    rows = lines(leaf.expected(tmp_path / "table"))
    leaf.write(tmp_path / "table", "", leaf.rows(1).append_column("newest", pa.array(["x"])))
    for change in (DELETES[leaf.kind], COLUMNS[leaf.kind]):
        next(iter(change.values()))(tmp_path / "table")
    assert lines(read_all(source.at(read_snapshot(place)), read_manifest(place)[0]).data()) == rows
    assert lines(read_all(source).data()) == lines(leaf.expected(tmp_path / "table")) != rows


def test_rows_of_several_row_groups_are_marked_in_their_own_groups(tmp_path: Path):
    write_deltalake(tmp_path, pa.table({"n": range(ROWS)}))
    [path] = tmp_path.glob("*.parquet")
    pq.write_table(pa.table({"n": range(ROWS)}), path, row_group_size=4)
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    log.write_text(re.sub(r'"size":\s*\d+', f'"size": {path.stat().st_size}', log.read_text()))
    mark_deleted(tmp_path, [0, 5, 6, 9])
    read = read_all(Delta(path=str(tmp_path)))
    assert list(read.good) == [f"{path.name}#{number}" for number in range(6)]
    assert read.column("n") == [1, 2, 3, 4, 7, 8]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_are_read_as_their_bytes(version: str, tmp_path: Path):
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = {"n": [0, 1, 2], "blob": [b"x" * 100_000, None, b""]}
    schema = pa.schema([("n", pa.int64()), blob])
    lance.write_dataset(pa.table(rows, schema=schema), tmp_path / "t.lance", data_storage_version=version)
    read = read_all(Lance(path=str(tmp_path / "t.lance")))
    assert (read.column("n"), read.column("blob")) == (rows["n"], rows["blob"])
    assert [schema.field("blob").type for schema in read.schemas] == [pa.large_binary()]


def test_the_file_of_an_added_column_that_vanishes_costs_the_rows_of_its_fragment(tmp_path: Path):
    leaf = SOURCES.adapters["lance"]
    two_files(leaf, tmp_path / "t")
    data = tmp_path / "t" / "table.lance" / "data"
    before = set(data.iterdir())
    COLUMNS["lance"]["added"](tmp_path / "t")
    source, units, schema = listed(leaf.source(tmp_path / "t"))
    sorted(set(data.iterdir()) - before)[0].unlink()
    read = read_all(source, units, schema)
    assert (len(read.good), len(read.bad), set(read.types.values())) == (ROWS, ROWS, {"SourceVanished"})


DAY = date(2026, 1, 1)
PARTITIONS = {
    "day": (pa.array([DAY, None]), {"2026-01-01": [0], "2026-01-02": []}),
    "time": (pa.array([DAY, None]).cast(pa.timestamp("us", "UTC")), {"2026-01-01": [0], "2026-01-01T00:00:00Z": [0]}),
    "number": (pa.array([7, None]), {"7": [0], "07": [0], "8": []}),
    "decimal": (pa.array(["1.50", None]).cast(pa.decimal128(5, 2)), {"1.5": [0], "1.50": [0]}),
    "truth": (pa.array([True, None]), {"true": [0], "false": []}),
    "text": (pa.array(["a b/c%", None]), {"a b/c%": [0], "a": []}),
    "marks": (pa.array(["{partition} x=1&y#z ü", None]), {"a": []}),
}


@pytest.mark.parametrize(("values", "cases"), PARTITIONS.values(), ids=PARTITIONS)
def test_a_filter_of_delta_selects_the_files_whose_partition_has_the_value(
    values: pa.Array, cases: dict[str, list[int]], tmp_path: Path
):
    write_deltalake(tmp_path, pa.table({"n": [0, 1], "p": values}), partition_by=["p"])
    read = read_all(Delta(path=str(tmp_path)))
    assert lines(read.data()) == lines(DeltaTable(tmp_path).to_pyarrow_table().to_pylist())
    for value, rows in cases.items():
        source = Delta(path=str(tmp_path), where={"p": "{partition}"}, allow_empty=True)
        assert source.is_dated
        assert read_all(source, partition=value).column("n") == rows
    if not pa.types.is_string(values.type):
        with pytest.raises(InputError):
            read_all(Delta(path=str(tmp_path), where={"p": "no such value"}))
