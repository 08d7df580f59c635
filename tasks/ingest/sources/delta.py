"""A Delta table in one of its versions: one row group of a file, one unit.

Columns out: the table's, in its types, including its partition columns, `row_id` (`path#n`) and `uri`. The version is
chosen once, when the manifest is taken. Files are read as they were written, so a table with deletion vectors or
renamed columns is refused.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import unquote

import pyarrow as pa
from pydantic import Field, NonNegativeInt

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.formats.parquet import open_parquet, row_groups, rows_of
from overnight.tasks.ingest.reading.table_blocks import as_schema, chosen_columns
from overnight.tasks.ingest.reading.unit_rows import Judged, RowRange, counted_rows, counted_units
from overnight.tasks.ingest.source import FileSource, TablePath
from overnight.tasks.ingest.versioned_file import SourceFile
from overnight.tasks.storage.location import File, Location, expand
from overnight.tasks.storage.object_store import delta_options, object_store_uri

REFUSED = {"columnMapping": "columns with other names in the files", "variantType": "columns of type variant"}


class Delta(FileSource):
    """The rows of a Delta table, or of some of its partitions."""

    kind: Literal["delta"] = "delta"
    path: TablePath
    version: Annotated[
        NonNegativeInt | None,
        Field(description="The version of the table; default: the newest when the inputs are listed."),
    ] = None
    where: Annotated[
        dict[str, str],
        Field(description='Values of the partition columns: {date: "{partition}"}.'),
    ] = {}
    columns: Annotated[list[str] | None, Field(description="Columns to read; default: all.")] = None

    dated_by: ClassVar[tuple[str, ...]] = ("path", "where")

    def snapshot(self, partition: str) -> str:
        return str(self._table(partition).version())

    def at(self, snapshot: str) -> Self:
        return self.model_copy(update={"version": int(snapshot)})

    def files(self, partition: str) -> Iterator[File]:
        table, location = self._table(partition), self.location(partition)
        _refuse(table, location)
        partitioned_by = table.metadata().partition_columns
        if unknown := sorted(set(self.where) - set(partitioned_by)):
            by = ", ".join(partitioned_by) or "no column"
            raise InputError(f"source.where: the table at {location} is partitioned by {by}, not by {unknown[0]}.")
        wanted = {name: expand(value, partition) for name, value in self.where.items()}
        actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path")
        values = {name: actions[f"partition.{name}"].cast(pa.string()).to_pylist() for name in partitioned_by}
        found = zip(*(actions[name].to_pylist() for name in ("path", "size_bytes", "modification_time")), strict=True)
        for place, (path, size, changed) in enumerate(found):
            own = {name: values[name][place] for name in partitioned_by}
            if any(own[name] != value for name, value in wanted.items()):
                continue
            name = unquote(path)
            uri = name if "://" in name else f"{object_store_uri(location).rstrip('/')}/{name}"
            version = json.dumps({"modified": changed, "partition": own, "size": size})
            yield File(name, uri, size, version, changed / 1000)

    def file(self, unit: dict[str, Any], size: int | None = None) -> SourceFile:
        # Delta never writes a file twice, and its log has no version from the store.
        return SourceFile(unit["uri"], "", size, self.anonymous, self.on_changed)

    def units(self, files: list[File]) -> pa.Table:
        return counted_units(files, self._parts)

    def _parts(self, file: File) -> list[RowRange]:
        with self.file({"uri": file.uri}, file.size).open() as opened:
            return row_groups(open_parquet(opened), opened)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema:
        schema = pa.schema(self._table(partition).schema().to_arrow())
        return chosen_columns(schema, self.columns)

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from counted_rows(unit, self._tables(unit, schema or pa.schema([])))

    def _tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        about = json.loads(unit["version"])
        partition = about["partition"]
        with self.file(unit, about.get("size")).open() as opened:
            file = open_parquet(opened)
            stored = [name for name in schema.names if name in file.schema_arrow.names and name not in partition]
            for found in rows_of(file, opened, unit["row_group"], stored):
                yield Judged(as_schema(found.data, schema, partition), found.errors)

    def _table(self, partition: str) -> Any:
        return _opened(self.location(partition), self.version, self.anonymous)


@lru_cache(maxsize=4)
def _versioned(uri: str, version: int, anonymous: bool) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(uri, version=version, storage_options=delta_options(anonymous))


def _opened(location: Location, version: int | None, anonymous: bool) -> Any:
    """Open the table. Raise `InputError` if there is no such table or version."""
    require_extra("deltalake", "source.kind: delta", "ingest")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    uri = object_store_uri(location)
    try:
        if version is not None:
            return _versioned(uri, version, anonymous)
        return DeltaTable(uri, storage_options=delta_options(anonymous))
    except TableNotFoundError as error:
        raise InputError(f"source.path: expected a Delta table, found none at {location}.") from error
    except DeltaError as error:
        which = "" if version is None else f" in version {version}"
        told = str(error).splitlines()[0]  # a list of unknown frames follows
        raise InputError(f"source.path: cannot read the Delta table at {location}{which}: {told}") from error


def _refuse(table: Any, location: Location) -> None:
    features = set(table.protocol().reader_features or ())
    mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    for feature in features & set(REFUSED) | ({"columnMapping"} if mapped else set()):
        raise InputError(f"source.path: the Delta table at {location} has {REFUSED[feature]}, which are not read yet.")
    if "deletionVectors" in features and (marked := pa.table(table.deletion_vectors()).num_rows):
        raise InputError(
            f"source.path: {marked} files of the Delta table at {location} have rows that deletion vectors mark as "
            "removed, which are not read yet. Rewrite them (REORG TABLE ... APPLY (PURGE)), then run again."
        )
