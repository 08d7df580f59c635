"""An Iceberg table: one data file of one snapshot, one unit. Columns out: the table's, `row_id` (`path#n`), `uri`.

The snapshot and the columns are chosen once, when the manifest is taken: the current columns for the current snapshot,
and for a `snapshot_id` of the job those of that snapshot. The snapshot must exist until the run ends. Rows that its
delete files remove do not count. Rows are counted while reading if their file has delete files, or if `where` selects
only some rows of the file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PrivateAttr

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.config.partition_names import filled
from overnight.tasks.errors import InputError, RowError
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file
from overnight.tasks.ingest.reading.table_blocks import as_schema, chosen_columns, require_known
from overnight.tasks.ingest.reading.unit_rows import file_units
from overnight.tasks.ingest.source import Columns, Source
from overnight.tasks.ingest.versioned_file import SourceFile
from overnight.tasks.storage.location import File, expand
from overnight.tasks.storage.object_store import iceberg_properties, kept_for

METADATA = ".metadata.json"


class Iceberg(Source):
    """The rows of an Iceberg table, or of some of its partitions."""

    kind: Literal["iceberg"] = "iceberg"
    table: Annotated[
        str,
        Field(
            min_length=1,
            description="The table's name in the catalogue, such as reviews.daily, or its .metadata.json file.",
        ),
    ]
    catalog: Annotated[
        dict[str, str],
        Field(description="A catalogue in pyiceberg's form: {name: prod, type: sql, uri: ...}; ${ENV_VAR} expands."),
    ] = {}
    snapshot_id: Annotated[
        int | None, Field(description="The snapshot of the table; default: the current one when the inputs are listed.")
    ] = None
    where: Annotated[dict[str, str], Field(description='Values of columns: {date: "{partition}"}.')] = {}
    columns: Columns = None

    dated_by: ClassVar[tuple[str, ...]] = ("table", "where")

    _schema_id: int | None = PrivateAttr(None)  # None: the columns of the snapshot

    def place(self, partition: str) -> str:
        return f"the Iceberg table {filled(self.table, partition)}"

    def snapshot(self, partition: str) -> str:
        table = self._table(partition)
        if self.snapshot_id is not None:
            return str(self.snapshot_id)
        current = table.current_snapshot()
        return f"{current.snapshot_id}:{table.schema().schema_id}" if current else ""

    def at(self, snapshot: str) -> Self:
        snapshot_id, _, schema_id = snapshot.partition(":")
        pinned = self.model_copy(update={"snapshot_id": int(snapshot_id)})
        pinned._schema_id = int(schema_id) if schema_id else None
        return pinned

    def files(self, partition: str) -> Iterator[File]:
        require_extra("pyiceberg", "source.kind: iceberg", "ingest")
        from pyiceberg.expressions import AlwaysTrue

        name = expand(self.table, partition)
        table = self._table(partition)
        where = _expanded(self.where, partition)
        if self.snapshot_id is None and table.current_snapshot() is None:
            return
        for uri, task in sorted(_tasks(table, self.snapshot_id, json.dumps(where)).items()):
            deletes = sorted(file.file_path for file in task.delete_files)
            is_whole = not deletes and task.residual == AlwaysTrue()
            version = {
                "table": name,
                "where": where,
                "rows": task.file.record_count if is_whole and task.file.record_count > 0 else None,
                "deletes": deletes,
            }
            path = uri.removeprefix(table.location().rstrip("/")).lstrip("/")
            yield File(path, uri, task.file.file_size_in_bytes, json.dumps(version))

    def units(self, files: list[File]) -> pa.Table:
        units = file_units(files, (json.loads(file.version)["rows"] for file in files))
        # counted rows are a part
        parts = pc.if_else(pc.is_null(units["rows"]), None, pa.scalar(0, pa.int32()))
        return units.set_column(units.column_names.index("row_group"), "row_group", parts)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema:
        return chosen_columns(self._columns(self._table(partition)).as_arrow(), self.columns)

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        from pyiceberg.io.pyarrow import ArrowScan

        version = json.loads(unit["version"])
        table, where = self._loaded(version["table"]), json.dumps(version["where"])
        task = _tasks(table, self.snapshot_id, where).get(unit["uri"])
        if task is None:
            raise RowError(f"expected the file in the snapshot {self.snapshot_id}, as listed, found none")
        try:
            if _size(table, unit["uri"]) != unit["size"]:
                raise ValueError(f"expected {unit['size']:,} bytes, as listed")
            row_filter = _scan(table, self.snapshot_id, where).row_filter
            reader = ArrowScan(table.metadata, table.io, self._columns(table), row_filter)
            for data in _no_more_than(version["rows"], reader.to_record_batches([task])):
                yield as_schema(data, schema)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            # An error of pyarrow's filesystems does not distinguish an unreachable store from a broken file.
            SourceFile(unit["uri"], "", unit["size"], on_changed=self.on_changed).look()
            content = "a data file and its files of deletes" if task.delete_files else "a data file"
            reason = shortage(error) if isinstance(error, MemoryError) else str(error).strip()
            raise RowError(f"expected {content}, as written: {reason}") from error

    def _columns(self, table: Any) -> Any:
        """Return the schema of Iceberg with which all files are read."""
        if self._schema_id is not None:
            return table.schemas()[self._schema_id]
        return table.scan(snapshot_id=self.snapshot_id).projection()

    def _loaded(self, name: str) -> Any:
        return _loaded(name, json.dumps(self.catalog), kept_for(_place(name, _expanded(self.catalog))))

    def _table(self, partition: str) -> Any:
        """Return the table. Raise `InputError` if there is no such table or snapshot."""
        name = expand(self.table, partition)
        _loaded.cache_clear()  # a listing reads the current state
        table = self._loaded(name)
        if self.snapshot_id is not None and table.snapshot_by_id(self.snapshot_id) is None:
            raise InputError(f"source.snapshot_id: the table {name} has no snapshot {self.snapshot_id} (any more).")
        require_known("where", self.where, table.schema().column_names)
        return table


def _expanded(settings: Mapping[str, str], partition: str = "all") -> dict[str, str]:
    return {key: expand(value, partition) for key, value in settings.items()}


def _place(name: str, catalog: Mapping[str, str]) -> str:
    """Return the URI in whose store the table is: its metadata file, or the folder of the catalogue's tables."""
    return name if name.endswith(METADATA) else catalog.get("warehouse", "")


@lru_cache(maxsize=4)
def _loaded(name: str, catalog: str, _kept_for: tuple[object, ...]) -> Any:
    require_extra("pyiceberg", "source.kind: iceberg", "ingest")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
    from pyiceberg.table import StaticTable

    properties = _expanded(json.loads(catalog))
    folder = _place(name, properties)
    properties = {**(iceberg_properties(folder) if kept_for(folder) else {}), **properties}
    try:
        if name.endswith(METADATA):
            return StaticTable.from_metadata(name, properties)
        return load_catalog(properties.pop("name", "default"), **properties).load_table(name)
    except (FileNotFoundError, UnicodeDecodeError, ValidationError, KeyError, TypeError) as error:
        raise InputError(f"source.table: cannot read the metadata of the Iceberg table {name}: {error}") from error
    except (NoSuchTableError, NoSuchNamespaceError, ValueError) as error:
        raise InputError(f"source.table: expected an Iceberg table, found none named {name}: {error}.") from error


def _scan(table: Any, snapshot_id: int | None, where: str) -> Any:
    from pyiceberg.expressions import AlwaysTrue, And, EqualTo

    condition: Any = AlwaysTrue()
    for column, value in json.loads(where).items():
        condition = And(condition, EqualTo(column, value=value))
    return table.scan(row_filter=condition, snapshot_id=snapshot_id)


def _tasks(table: Any, snapshot_id: int | None, where: str) -> dict[str, Any]:
    """Return the scan task of each data file, by its URI. Raise `InputError` if pyiceberg cannot read the metadata."""
    try:
        return _planned(_Key(table), snapshot_id, where)
    except Exception as error:  # a damaged manifest raises any error, such as zlib's or a missing key
        if not is_corrupt_file(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"source.table: cannot plan to read {'.'.join(table.name())}: {reason}") from error


@dataclass(frozen=True, eq=False)
class _Key:
    """A loaded table as a cache key."""

    table: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.table is self.table

    def __hash__(self) -> int:
        return id(self.table)


@lru_cache(maxsize=4)
def _planned(key: _Key, snapshot_id: int | None, where: str) -> dict[str, Any]:
    from overnight.tasks.ingest.formats.iceberg_manifests import BoundedFiles

    scan = _scan(key.table, snapshot_id, where).update(io=BoundedFiles(key.table.io))
    return {task.file.file_path: task for task in scan.plan_files()}


def _no_more_than(count: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches. Raise `ValueError` before the last of them if they have more than `count` rows."""
    rows, last = 0, None
    for batch in batches:
        rows += len(batch)
        if count is not None and rows > count:
            raise ValueError(f"expected {count:,} rows, by the table's metadata, found more")
        if last is not None:
            yield last
        last = pa.Table.from_batches([batch])
    if last is not None:
        yield last


def _size(table: Any, uri: str) -> int | None:
    """Return a file's size by the table's own `FileIO`; None for a folder."""
    try:
        return len(table.io.new_input(uri))
    except TypeError:  # pyarrow reports no size for a folder
        return None
