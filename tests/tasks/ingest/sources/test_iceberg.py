"""Iceberg tables in a catalogue of SQLite: read in the snapshot that was listed."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.sources.iceberg import Iceberg
from overnight.tasks.state.manifest import digest, read_manifest, read_snapshot
from overnight.tasks.storage.location import Location
from tests.contracts.sources.reading import Read, read_all
from tests.tasks.ingest.conftest import rewritten
from tests.tasks.ingest.sources.test_parquet import varint

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("day", pa.date32()), ("v", pa.list_(pa.float32()))])
DAYS = [date(2026, 1, 1), date(2026, 1, 2)]


def rows(first: int, count: int, day: date) -> pa.Table:
    numbers = range(first, first + count)
    columns = {"n": numbers, "text": [f"row {n}" for n in numbers], "day": [day] * count}
    columns["v"] = [[n / 2] for n in numbers]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """With the table `news.daily`: three rows of the first of January and four of the second, in a snapshot each."""
    monkeypatch.setenv("CATALOG", f"sqlite:///{tmp_path}/catalog.db")
    catalog = load_catalog("test", **settings(tmp_path))
    catalog.create_namespace("news")
    table = catalog.create_table("news.daily", schema=SCHEMA)
    with table.update_spec() as update:
        update.add_identity("day")
    for number, day in enumerate(DAYS):
        table.append(rows(number * 10, 3 + number, day))
    return catalog


def settings(tmp_path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def source(catalog: Catalog) -> Callable[..., Iceberg]:
    def made(table: str = "news.daily", **options: Any) -> Iceberg:
        return Iceberg(table=table, catalog={"name": "test", "type": "sql", "uri": "${CATALOG}"}, **options)

    return made


def read(source: Iceberg, partition: str = "all") -> Read:
    return read_all(source.at(source.snapshot(partition)), source.units(list_inputs(source, partition)))


@pytest.mark.parametrize("count", [1, 2, 100, -5])
def test_no_row_is_lost_in_silence_where_the_metadata_lie_about_their_number(
    source: Callable[..., Iceberg], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(DataFile, "record_count", property(lambda file: count))
    found = read(source())
    if count < 1:  # then they are counted as they are read
        assert (len(found.good), found.bad) == (7, {})
    elif count < 3:
        assert len(found.bad) == 2 * count
        assert {reason.rpartition(": ")[2] for reason in found.bad.values()} == {
            f"expected {count} rows, by the table's metadata, found more"
        }
    else:
        assert (len(found.good), len(found.bad)) == (7, 193)


def test_only_the_files_of_a_partition_are_inputs(source: Callable[..., Iceberg], catalog: Catalog) -> None:
    without_catalogue = Iceberg(table=catalog.load_table("news.daily").metadata_location)
    assert sorted(read(without_catalogue).column("n")) == [0, 1, 2, 10, 11, 12, 13]
    dated = source(where={"day": "{partition}"})
    assert dated.is_dated
    for partition, expected in (("2026-01-01", [0, 1, 2]), ("2026-01-02", [10, 11, 12, 13])):
        assert read(dated, partition).column("n") == expected
    before = digest(list_inputs(dated, "2026-01-01"))
    catalog.load_table("news.daily").append(rows(90, 1, DAYS[1]))
    assert digest(list_inputs(dated, "2026-01-01")) == before
    assert sorted(read(dated, "2026-01-02").column("n")) == [*range(10, 14), 90]
    with pytest.raises(InputError, match="found none"):
        list_inputs(dated, "2026-01-03")


def delete_by_position(
    table: Table, uri: str, positions: list[int], content: DataFileContent = DataFileContent.POSITION_DELETES
) -> None:
    """Marks rows of a data file as deleted, in a file beside it, as other engines do; pyiceberg rewrites data files."""
    deletes = pa.table({"file_path": [uri] * len(positions), "pos": pa.array(positions, pa.int64())})
    path = f"{table.location()}/data/deletes.parquet"
    with table.io.new_output(path).create() as file:
        pq.write_table(deletes, file)
    [data] = [task.file for task in table.scan().plan_files() if task.file.file_path == uri]
    described = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=data.partition,
        record_count=len(deletes),
        file_size_in_bytes=len(table.io.new_input(path)),
        _table_format_version=2,
    )
    described.spec_id = data.spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        writer_of_data = update.new_manifest_writer

        def writer_of_deletes(**arguments: Any) -> Any:
            writer = writer_of_data(**arguments)
            writer.content = lambda: ManifestContent.DELETES  # type: ignore[method-assign]
            return writer

        update.new_manifest_writer = writer_of_deletes  # type: ignore[method-assign]
        update.append_data_file(described)


def test_a_table_with_deletes_by_value_is_refused_because_pyiceberg_does_not_apply_them(
    source: Callable[..., Iceberg], catalog: Catalog
) -> None:
    [_, second] = list_inputs(source(), "all")
    delete_by_position(catalog.load_table("news.daily"), second.uri, [0], DataFileContent.EQUALITY_DELETES)
    with pytest.raises(InputError, match="equality deletes"):
        list_inputs(source(), "all")


def test_rows_that_a_file_of_deletes_marks_are_none(
    source: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    before, place = source(), Location(str(tmp_path)) / "manifest"
    take_manifest(place, before, "all")
    [second] = [file for file in list_inputs(before, "all") if "day=2026-01-02" in file.path]
    delete_by_position(catalog.load_table("news.daily"), second.uri, [0, 2])
    found = read(source())
    assert sorted(found.column("n")) == [0, 1, 2, 11, 13]
    assert found.counts[second.path] == 2
    assert digest(list_inputs(source(), "all")) != read_manifest(place)[1], "the partition is stale"
    then = before.at(read_snapshot(place))
    assert sorted(read_all(then, read_manifest(place)[0]).column("n")) == [0, 1, 2, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (Path.unlink, "deletes.parquet'. Detail: [errno 2] No such file"),
        (rewritten(lambda content: content[:-9]), "Parquet magic bytes not found in footer"),
    ],
    ids=["gone", "cut"],
)
def test_rows_that_a_broken_file_of_deletes_is_about_are_never_read(
    source: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    [second] = [file for file in list_inputs(source(), "all") if "day=2026-01-02" in file.path]
    delete_by_position(catalog.load_table("news.daily"), second.uri, [0, 2])
    [deletes] = tmp_path.rglob("deletes.parquet")
    damage(deletes)
    found = read(source())
    assert found.column("n") == [0, 1, 2]
    assert list(found.bad) == [second.path]
    assert found.bad[second.path].startswith("expected a data file and its files of deletes, as written: ")
    assert reason in found.bad[second.path]


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        ("*.metadata.json", "cannot read the metadata of the Iceberg table news.daily"),
        ("snap-*.avro", "cannot plan to read news.daily"),
        ("*-m0.avro", "cannot plan to read news.daily"),
    ],
)
def test_a_table_whose_own_files_are_gone_is_refused(
    source: Callable[..., Iceberg], tmp_path: Path, files: str, refusal: str
) -> None:
    """tests/fuzz damages them in every other way."""
    for path in tmp_path.rglob(files):
        path.unlink()
    with pytest.raises(InputError, match=rf"^source\.table: {refusal}: \S+"):
        list_inputs(source(), "all")


@pytest.mark.parametrize("length", [10**9, 2**62], ids=["long", "huge"])
@pytest.mark.parametrize("files", ["snap-*.avro", "*-m0.avro"], ids=["list of manifests", "manifests"])
def test_a_length_beyond_the_end_of_a_manifest_is_an_error_and_ends_no_process(
    source: Callable[..., Iceberg], tmp_path: Path, files: str, length: int
) -> None:
    """Of a text in the header, where a compiled decoder would read whatever memory lies behind."""
    for path in tmp_path.rglob(files):
        content = path.read_bytes()
        place = content.index(b"avro.codec") + len(b"avro.codec")
        path.write_bytes(content[:place] + varint(length) + content[place + 1 :])
    with pytest.raises(InputError, match=r"^source\.table: cannot plan to read news\.daily: \w+Error: "):
        list_inputs(source(), "all")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"table": "news.weekly"}, r"expected an Iceberg table, found none named news\.weekly"),
        ({"snapshot_id": 7}, "has no snapshot 7"),
        ({"where": {"date": "x"}}, "no column date; the columns are n, text, day, v"),
        ({"columns": ["old"]}, "no column old"),
        ({"table": "news.empty"}, r"below the Iceberg table news\.empty, found none"),
    ],
)
def test_what_is_no_table_snapshot_or_column_says_so(
    source: Callable[..., Iceberg], catalog: Catalog, settings: dict[str, Any], told: str
) -> None:
    catalog.create_table("news.empty", schema=SCHEMA)
    with pytest.raises(InputError, match=told):
        read_all(source(**settings))
