"""The layout of the files of a Delta table's version: the names of the columns in them, and the deleted rows.

A table that maps columns (`delta.columnMapping.mode`) has each field's name in the files in the metadata of its schema,
also inside structs. The mode `id` finds a field by its number, because files from Iceberg have other names.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

NAME, NUMBER = b"delta.columnMapping.physicalName", b"delta.columnMapping.id"
NUMBER_IN_FILE = b"PARQUET:field_id"


@dataclass(frozen=True)
class Layout:
    """The layout of the files of a table's version. `mode` is the mode of column mapping, empty if there is none.

    `deleted` has, by a file's URI without its scheme, True for each row that a deletion vector marks.
    """

    schema: pa.Schema
    mode: str
    deleted: dict[str, np.ndarray]

    @classmethod
    def of(cls, table: Any) -> "Layout":
        """Return the layout of a loaded table. It takes a byte for each row of a file that has deleted rows."""
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        deleted = {}
        if "deletionVectors" in (table.protocol().reader_features or ()):
            for batch in pa.table(table.deletion_vectors()).to_batches():
                for uri, stays in zip(*batch.columns, strict=True):
                    deleted[_without_scheme(unquote(uri.as_py()))] = ~np.asarray(stays.values)
        return cls(pa.schema(table.schema().to_arrow()), "" if mode == "none" else mode, deleted)

    def deleted_rows(self, uri: str) -> np.ndarray | None:
        """Return True for each row of the file that is deleted; None if none of them is."""
        return self.deleted.get(_without_scheme(uri))

    def stored_names(self, names: Iterable[str], file: pa.Schema) -> dict[str, str]:
        """Return the name in the file, whose columns are `file`, of each of the table's columns that the file has."""
        stored = {}
        for name in names:
            if (own := self._stored_name(self.schema.field(name), file)) is not None:
                stored[name] = own
        return stored

    def renamed(self, data: pa.Table, stored: dict[str, str]) -> pa.Table:
        """Return the rows of a file, which has the columns `stored`, with the table's names, also inside structs."""
        columns = {}
        for name, own in stored.items():
            kind = self.schema.field(name).type
            chunks = [self._renamed(chunk, kind) for chunk in data[own].chunks]
            columns[name] = pa.chunked_array(chunks, None if chunks else bare(kind))
        return pa.table(columns)

    def _stored_name(self, field: pa.Field, stored: Iterable[pa.Field]) -> str | None:
        metadata = field.metadata or {}
        for other in stored:
            if self.mode == "id":
                is_same = (other.metadata or {}).get(NUMBER_IN_FILE) == metadata[NUMBER]
            else:
                is_same = other.name.encode() == metadata[NAME]
            if is_same:
                return str(other.name)
        return None

    def _renamed(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the array with the names of `kind` inside. A field that the file lacks is null."""
        if pa.types.is_struct(kind):
            children = []
            for field in kind:
                own = self._stored_name(field, array.type)
                if own is None:
                    children.append(pa.nulls(len(array), bare(field.type)))
                else:
                    children.append(self._renamed(array.field(own), field.type))
            fields = [pa.field(field.name, child.type) for field, child in zip(kind, children, strict=True)]
            return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
        if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
            return array
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        offsets = pa.array(array.offsets.to_numpy(), mask=np.append(is_null, False))
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(offsets, self._renamed(array.values, kind.value_type))
        keys = self._renamed(array.keys, kind.key_type)
        items = self._renamed(array.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items)


def bare(kind: pa.DataType) -> pa.DataType:
    """Return the type without the metadata of the fields inside."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, bare(field.type), field.nullable) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(bare(kind.key_type), bare(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, bare(kind.value_type), kind.value_field.nullable))
    return kind


def _without_scheme(uri: str) -> str:
    return uri.rpartition("://")[2]
