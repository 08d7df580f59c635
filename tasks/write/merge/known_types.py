"""Find types for columns that are null in all rows of a run: Arrow's type null does not fit other files of a table.

The types come from the source's schema, the models' columns, and the job's other partitions. If these lack the type,
the column is left out until a run has a value in it, as in Delta tables and databases. The receipt then has a warning.
The same holds for the fields of a struct, also inside of lists and maps; the struct's other fields stay.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.write.checks.column_statistics import Columns, describe
from overnight.tasks.write.checks.previous_receipt import other_schemas
from overnight.tasks.write.merge.merge_parts import Prepared, published_schema
from overnight.tasks.write.merge.output_schema import unified


def typed(records: list[Record], known: Iterable[pa.Schema | None], run: Run) -> list[Record]:
    """Return the footers `records` of staged parts, in which columns of type null have a type if one is found.

    Types come from the schemas `known`, in order, and then from the job's other partitions. None in `known` is skipped.
    """
    wanted = _unknown(published_schema(records))
    if not wanted:
        return records
    found: dict[str, pa.DataType] = {}
    for schema in (*known, *other_schemas(run)):
        for field in schema or ():
            if field.name in wanted and _is_known(field.type):
                found.setdefault(field.name, field.type)
        if wanted <= found.keys():
            break
    return [replace(record, schema=_with_types(record.schema, found)) for record in records]


def of_known_types(schema: pa.Schema, keep: str | None = None) -> pa.Schema:
    """Return the schema without the columns and the struct fields of type null, or of lists or maps of null.

    A struct without other fields is left out as a whole. The column `keep` stays as it is.
    """
    kinds = [field.type if field.name == keep else _known_part(field.type) for field in schema]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True) if kind is not None])


def columns_left_out(records: list[Record], ready: Prepared) -> Columns:
    """Return the statistics, all nulls, of the columns that are left out because their type is unknown.

    `records` are the footers of the staged parts, which have these columns. `ready` is the publish that lacks them.
    """
    names = _unknown(published_schema(records)) - set(ready.schema.names)
    return describe(pa.table({name: pa.nulls(ready.rows) for name in sorted(names)}))


def warnings_of_left_out(records: list[Record], ready: Prepared) -> list[str]:
    """Return a sentence for each column or struct field that is left out because its type is unknown.

    `records` are the footers of the staged parts, which have these columns. `ready` is the publish that lacks them.
    """
    unknown = {path for path, kind in _paths(published_schema(records)) if _known_part(kind) is None}
    left_out = unknown - {path for path, _ in _paths(ready.schema)}
    return [
        f"column {path!r} has no value in any row, and neither the source, a model nor another partition has its "
        "type: it is left out until a run gives it one."
        for path in sorted(left_out)
        if not any(path.startswith(f"{outer}.") for outer in left_out)
    ]


def _with_types(schema: pa.Schema, found: dict[str, pa.DataType]) -> pa.Schema:
    for place, field in enumerate(schema):
        if field.name in found and not _is_known(field.type):
            try:
                schema = schema.set(place, field.with_type(unified(field.name, found[field.name], field.type)))
            except ContractError:  # here the column is a list, and the found type is not
                continue
    return schema


def _unknown(schema: pa.Schema) -> set[str]:
    return {field.name for field in schema if not _is_known(field.type)}


def _is_known(kind: pa.DataType) -> bool:
    """Return True if a type and all its inner types are known."""
    return _known_part(kind) == kind


def _known_part(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without its struct fields of unknown type; None if nothing of it is known."""
    if types.is_null(kind):
        return None
    if not types.is_nested(kind) or types.is_union(kind):
        return kind
    if types.is_struct(kind):
        parts = [(field, _known_part(field.type)) for field in kind]
        known = [field.with_type(part) for field, part in parts if part is not None]
        return pa.struct(known) if known else None
    inner = kind.item_field if types.is_map(kind) else kind.value_field
    item = _known_part(inner.type)
    if item is None or item == inner.type:
        return None if item is None else kind
    inner = inner.with_type(item)
    if types.is_map(kind):
        return pa.map_(kind.key_field, inner)
    if types.is_fixed_size_list(kind):
        return pa.list_(inner, kind.list_size)
    return pa.large_list(inner) if types.is_large_list(kind) else pa.list_(inner)


def _paths(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """Yield each column and each struct field inside one as its path, such as `meta.notes`, and its type."""
    for field in schema:
        yield from _inner_paths(field.name, field.type)


def _inner_paths(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    yield path, kind
    if types.is_nested(kind) and not types.is_union(kind):
        for place in range(kind.num_fields):
            inner = kind.field(place)
            yield from _inner_paths(f"{path}.{inner.name}" if types.is_struct(kind) else path, inner.type)
