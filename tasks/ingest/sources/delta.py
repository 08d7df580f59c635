"""A Delta table in one of its versions: one row group of a file, one unit.

Columns out: the table's, in its types, including its partition columns, `row_id` (`path#n`) and `uri`. The version is
chosen once, when the manifest is taken. The number `n` counts only the rows of the file that this version has: a row
that a deletion vector marks does not count.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, NonNegativeInt

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.formats.delta_layout import Layout, bare
from overnight.tasks.ingest.formats.parquet import open_parquet, row_groups, rows_of
from overnight.tasks.ingest.reading.table_blocks import as_schema, chosen_columns, is_corrupt_file, translate_panics
from overnight.tasks.ingest.reading.unit_rows import Judged, RowRange, counted_rows, counted_units
from overnight.tasks.ingest.source import FileSource, TablePath
from overnight.tasks.ingest.versioned_file import SourceFile
from overnight.tasks.storage.location import File, Location, expand
from overnight.tasks.storage.object_store import delta_options, object_store_uri

REFUSED = frozenset({"variantType", "variantType-preview", "variantShredding-preview"})


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
        actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path")
        is_wanted = np.ones(len(actions), bool)
        for name, value in self.where.items():
            is_wanted &= _equal(actions[f"partition.{name}"], name, expand(value, partition))
        root, layout = object_store_uri(location).rstrip("/"), self._layout(object_store_uri(location))
        values = {name: actions[f"partition.{name}"].cast(pa.string()).to_pylist() for name in partitioned_by}
        found = zip(*(actions[name].to_pylist() for name in ("path", "size_bytes", "modification_time")), strict=True)
        for place, (path, size, changed) in enumerate(found):
            if not is_wanted[place]:
                continue
            name = unquote(path)
            uri = name if "://" in name else f"{root}/{name}"
            own = {name: values[name][place] for name in partitioned_by}
            about = {"modified": changed, "partition": own, "size": size}
            marked = layout.deleted_rows(uri)
            if marked is not None:
                about["deleted"] = hashlib.sha256(marked.tobytes()).hexdigest()[:16]
            if layout.mode:
                about["mapping"] = layout.mode
            if "://" in name:  # the file of a clone is elsewhere
                about["table"] = root
            yield File(name, uri, size, json.dumps(about), changed / 1000)

    def file(self, unit: dict[str, Any], size: int | None = None) -> SourceFile:
        # Delta never writes a file twice, and its log has no version from the store.
        return SourceFile(unit["uri"], "", size, self.anonymous, self.on_changed)

    def units(self, files: list[File]) -> pa.Table:
        return counted_units(files, self._parts)

    def _parts(self, file: File) -> list[RowRange]:
        with self.file({"uri": file.uri}, file.size).open() as opened:
            stored = row_groups(open_parquet(opened), opened)
        layout = self._layout_of({"path": file.path, "uri": file.uri, "version": file.version})
        marked = layout.deleted_rows(file.uri) if layout else None
        if marked is None:
            return stored
        parts, first = [], 0
        for part in stored:
            rows = part.rows - int(marked[part.first_row : part.first_row + part.rows].sum())
            parts.append(RowRange(first, rows, part.number, part.size))
            first += rows
        return parts

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema:
        chosen = chosen_columns(pa.schema(self._table(partition).schema().to_arrow()), self.columns)
        return pa.schema([(field.name, bare(field.type)) for field in chosen])

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from counted_rows(unit, self._tables(unit, schema or pa.schema([])))

    def _tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        about = json.loads(unit["version"])
        partition, layout = about["partition"], self._layout_of(unit)
        marked = layout.deleted_rows(unit["uri"]) if layout else None
        with self.file(unit, about.get("size")).open() as opened:
            file = open_parquet(opened)
            wanted = [name for name in schema.names if name not in partition]
            stored = {name: name for name in wanted if name in file.schema_arrow.names}
            if layout and layout.mode:
                stored = layout.stored_names(wanted, file.schema_arrow)
            place = sum(file.metadata.row_group(group).num_rows for group in range(unit["row_group"]))
            for rows in rows_of(file, opened, unit["row_group"], list(stored.values())):
                count = len(rows.data)
                kept = rows if marked is None else _without(rows, marked[place : place + count])
                place += count
                data = layout.renamed(kept.data, stored) if layout and layout.mode and stored else kept.data
                yield Judged(as_schema(data, schema, partition), kept.errors)

    def _layout_of(self, unit: dict[str, Any]) -> Layout | None:
        """Return the layout of the unit's table; None if its file has the table's names, and no row is deleted."""
        about = json.loads(unit["version"])
        if not {"deleted", "mapping"} & about.keys():
            return None
        return self._layout(about.get("table") or unit["uri"].removesuffix(unit["path"]))

    def _layout(self, uri: str) -> Layout:
        uri = uri.rstrip("/")
        if self.version is None:
            return _read_layout(_opened(uri, None, self.anonymous), uri)
        return _layout_of_version(uri, self.version, self.anonymous)

    def _table(self, partition: str) -> Any:
        return _opened(object_store_uri(self.location(partition)), self.version, self.anonymous)


@lru_cache(maxsize=4)
def _layout_of_version(uri: str, version: int, anonymous: bool) -> Layout:
    return _read_layout(_opened(uri, version, anonymous), uri)


def _read_layout(table: Any, uri: str) -> Layout:
    try:
        with translate_panics():
            return Layout.of(table)
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        told = str(error).splitlines()[0]
        raise InputError(
            f"source.path: cannot read the deletion vectors of the Delta table at {masked(uri)}: {told}"
        ) from error


def _without(rows: Judged, marked: np.ndarray) -> Judged:
    """Return the rows that are not `marked`. Rows beyond the end of `marked` stay."""
    kept = np.setdiff1d(np.arange(len(rows.data)), np.flatnonzero(marked))
    errors = {place: rows.errors[old] for place, old in enumerate(kept.tolist()) if old in rows.errors}
    return Judged(rows.data.take(kept), errors)


def _equal(values: pa.ChunkedArray, name: str, text: str) -> np.ndarray:
    """Return True for each value of a partition column that is the value in `text`. Times are in UTC."""
    kind = pa.timestamp("us") if pa.types.is_timestamp(values.type) else values.type
    try:
        wanted = pa.scalar(text.removesuffix("Z") if pa.types.is_timestamp(kind) else text).cast(kind)
    except pa.ArrowInvalid:
        raise InputError(f"source.where: expected a value of type {values.type} for {name}, found {text}.") from None
    return pc.fill_null(pc.equal(values.cast(kind), wanted), False).to_numpy()


@lru_cache(maxsize=4)
def _versioned(uri: str, version: int, anonymous: bool) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(uri, version=version, storage_options=delta_options(anonymous))


def _opened(uri: str, version: int | None, anonymous: bool) -> Any:
    """Open the table. Raise `InputError` if there is no such table or version."""
    require_extra("deltalake", "source.kind: delta", "ingest")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    place = masked(uri)
    try:
        if version is not None:
            return _versioned(uri, version, anonymous)
        return DeltaTable(uri, storage_options=delta_options(anonymous))
    except TableNotFoundError as error:
        raise InputError(f"source.path: expected a Delta table, found none at {place}.") from error
    except DeltaError as error:
        which = "" if version is None else f" in version {version}"
        told = str(error).splitlines()[0]  # a list of unknown frames follows
        raise InputError(f"source.path: cannot read the Delta table at {place}{which}: {told}") from error


def _refuse(table: Any, location: Location) -> None:
    if set(table.protocol().reader_features or ()) & REFUSED:
        raise InputError(
            f"source.path: the Delta table at {location} has columns of type variant, for which Arrow has no type. "
            "Read a copy without them."
        )
