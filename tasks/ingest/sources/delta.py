"""A Delta table in one of its versions: one row group of a file, one unit.

Columns out: the table's, in its types, including its partition columns, `row_id` (`path#n`) and `uri`. The version is
chosen once, when the manifest is taken. The number `n` counts only the rows of the file that this version has: a row
that a deletion vector marks does not count.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal
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
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file, translate_panics
from overnight.tasks.ingest.reading.table_blocks import as_schema, chosen_columns
from overnight.tasks.ingest.reading.unit_rows import Judged, RowRange, counted_units
from overnight.tasks.ingest.source import Columns, TableSource, kept_by_version
from overnight.tasks.rows.arrow_types import with_types
from overnight.tasks.storage.location import File, expand
from overnight.tasks.storage.object_store import delta_options, object_store_uri

REFUSED = frozenset({"variantType", "variantType-preview", "variantShredding-preview"})


class Delta(TableSource):
    """The rows of a Delta table, or of some of its partitions."""

    kind: Literal["delta"] = "delta"
    version: Annotated[
        NonNegativeInt | None,
        Field(description="The version of the table; default: the newest when the inputs are listed."),
    ] = None
    where: Annotated[
        dict[str, str],
        Field(description='Values of the partition columns: {date: "{partition}"}.'),
    ] = {}
    columns: Columns = None

    dated_by: ClassVar[tuple[str, ...]] = ("path", "where")

    def snapshot(self, partition: str) -> str:
        return str(self._table(partition).version())

    def files(self, partition: str) -> Iterator[File]:
        table, location = self._table(partition), self.location(partition)
        if set(table.protocol().reader_features or ()) & REFUSED:
            raise InputError(
                f"source.path: the Delta table at {location} has columns of type variant, for which Arrow has no type. "
                "Read a copy without them."
            )
        partitioned_by = table.metadata().partition_columns
        if unknown := sorted(set(self.where) - set(partitioned_by)):
            by = ", ".join(partitioned_by) or "no column"
            raise InputError(f"source.where: the table at {location} is partitioned by {by}, not by {unknown[0]}.")
        actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path")
        in_partition = np.ones(len(actions), bool)
        for name, value in self.where.items():
            in_partition &= _equal(actions[f"partition.{name}"], name, expand(value, partition))
        actions = actions.filter(pa.array(in_partition))
        values = {name: actions[f"partition.{name}"].cast(pa.string()).to_pylist() for name in partitioned_by}
        root = object_store_uri(location).rstrip("/")
        layout = self._layout(root)
        for row, action in enumerate(actions.select(["path", "size_bytes", "modification_time"]).to_pylist()):
            name, size, time_of_change = unquote(action["path"]), action["size_bytes"], action["modification_time"]
            uri = name if "://" in name else f"{root}/{name}"
            own = {column: values[column][row] for column in partitioned_by}
            version = {"modified": time_of_change, "partition": own, "size": size}
            marks = layout.deleted_rows(uri)
            if marks is not None:
                version["deleted"] = hashlib.sha256(marks.tobytes()).hexdigest()[:16]
            if layout.mode:
                version["mapping"] = layout.mode
            if "://" in name:  # the file of a clone is elsewhere
                version["table"] = root
            yield File(name, uri, size, json.dumps(version), time_of_change / 1000)

    def units(self, files: list[File]) -> pa.Table:
        return counted_units(files, self._parts)

    def _parts(self, file: File) -> list[RowRange]:
        with self.file({"uri": file.uri}, file.size).open() as handle:
            groups = row_groups(open_parquet(handle), handle)
        marks = self._deleted_rows({"path": file.path, "uri": file.uri, "version": file.version})
        if marks is None:
            return groups
        parts, first = [], 0
        for group in groups:
            rows = group.rows - int(marks[group.first_row : group.first_row + group.rows].sum())
            parts.append(RowRange(first, rows, group.number, group.size))
            first += rows
        return parts

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema:
        fields = chosen_columns(pa.schema(self._table(partition).schema().to_arrow()), self.columns)
        return with_types(fields, bare)

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        version = json.loads(unit["version"])
        partition, layout = version["partition"], self._layout_of(unit)
        marks = self._deleted_rows(unit)
        with self.file(unit, version.get("size")).open() as handle:
            file = open_parquet(handle)
            names = [name for name in schema.names if name not in partition]
            file_names = {name: name for name in names if name in file.schema_arrow.names}
            if layout and layout.mode:
                file_names = layout.stored_names(names, file.schema_arrow)
            first = sum(file.metadata.row_group(group).num_rows for group in range(unit["row_group"]))
            for rows in rows_of(file, handle, unit["row_group"], list(file_names.values())):
                stop = first + len(rows.data)
                current = rows if marks is None else _without(rows, marks[first:stop])
                first = stop
                data = current.data
                if layout and layout.mode and file_names:
                    data = layout.renamed(data, file_names)
                yield Judged(as_schema(data, schema, partition), current.errors)

    def _deleted_rows(self, unit: dict[str, Any]) -> np.ndarray | None:
        layout = self._layout_of(unit)
        return layout.deleted_rows(unit["uri"]) if layout else None

    def _layout_of(self, unit: dict[str, Any]) -> Layout | None:
        """Return the layout of the unit's table; None if its file has the table's names, and no row is deleted."""
        version = json.loads(unit["version"])
        if not {"deleted", "mapping"} & version.keys():
            return None
        return self._layout(version.get("table") or unit["uri"].removesuffix(unit["path"]))

    def _layout(self, uri: str) -> Layout:
        return _read_layout(uri.rstrip("/"), self.version, self.anonymous)

    def _table(self, partition: str) -> Any:
        return _opened(object_store_uri(self.location(partition)), self.version, self.anonymous)


@kept_by_version
def _read_layout(uri: str, version: int | None, anonymous: bool) -> Layout:
    try:
        with translate_panics():
            return Layout.of(_opened(uri, version, anonymous))
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        reason = str(error).splitlines()[0]
        raise InputError(
            f"source.path: cannot read the deletion vectors of the Delta table at {masked(uri)}: {reason}"
        ) from error


def _without(rows: Judged, is_deleted: np.ndarray) -> Judged:
    """Return the rows that are not deleted. Rows beyond the end of `is_deleted` stay."""
    positions = np.setdiff1d(np.arange(len(rows.data)), np.flatnonzero(is_deleted))
    errors = {new: rows.errors[old] for new, old in enumerate(positions.tolist()) if old in rows.errors}
    return Judged(rows.data.take(positions), errors)


def _equal(values: pa.ChunkedArray, name: str, text: str) -> np.ndarray:
    """Return True for each value of a partition column that is the value in `text`. Times are in UTC."""
    kind, own_text = values.type, text
    if pa.types.is_timestamp(kind):
        kind, own_text = pa.timestamp("us"), text.removesuffix("Z")
    try:
        value = pa.scalar(own_text).cast(kind)
    except pa.ArrowInvalid:
        raise InputError(f"source.where: expected a value of type {values.type} for {name}, found {text}.") from None
    return pc.fill_null(pc.equal(values.cast(kind), value), False).to_numpy()


@kept_by_version
def _opened(uri: str, version: int | None, anonymous: bool) -> Any:
    """Open the table. Raise `InputError` if there is no such table or version."""
    require_extra("deltalake", "source.kind: delta", "ingest")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(uri, version=version, storage_options=delta_options(uri, anonymous))
    except TableNotFoundError as error:
        raise InputError(f"source.path: expected a Delta table, found none at {masked(uri)}.") from error
    except DeltaError as error:
        suffix = "" if version is None else f" in version {version}"
        reason = str(error).splitlines()[0]  # a list of unknown frames follows
        raise InputError(f"source.path: cannot read the Delta table at {masked(uri)}{suffix}: {reason}") from error
