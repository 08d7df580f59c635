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


def with_known_types(records: list[Record], known: Iterable[pa.Schema | None], run: Run) -> list[Record]:
    """Return the footers of staged parts, in which columns of type null have a type if one is known.

    Types come from the schemas `known`, in order, and then from the job's other partitions.
    """
    names = _unknown(published_schema(records))
    if not names:
        return records
    kinds: dict[str, pa.DataType] = {}
    for schema in (*known, *other_schemas(run)):
        for field in schema or ():
            if field.name in names and _is_known(field):
                kinds.setdefault(field.name, field.type)
        if names <= kinds.keys():
            break
    return [replace(record, schema=_with_types(record.schema, kinds)) for record in records]


def of_known_types(schema: pa.Schema, keep: str | None = None) -> pa.Schema:
    """Return the schema without the columns and struct fields of type null, except the column `keep`.

    A struct without other fields is left out as a whole.
    """
    fields = []
    for field in schema:
        kind = field.type if field.name == keep else _known_part(field.type)
        if kind is not None:
            fields.append(field.with_type(kind))
    return pa.schema(fields)


def statistics_of_left_out(records: list[Record], ready: Prepared) -> Columns:
    """Return the statistics, all nulls, of the staged columns that `ready` lacks because their type is unknown."""
    names = _unknown(published_schema(records)).difference(ready.schema.names)
    return describe(pa.table({name: pa.nulls(ready.rows) for name in sorted(names)}))


def warnings_of_left_out(records: list[Record], ready: Prepared) -> list[str]:
    """Return a sentence for each staged column or struct field that `ready` lacks because its type is unknown."""
    unknown = {path for path, kind in _paths(published_schema(records)) if _known_part(kind) is None}
    left_out = unknown - {path for path, _ in _paths(ready.schema)}
    warnings = []
    for path in sorted(left_out):
        if not any(path.startswith(f"{outer}.") for outer in left_out):
            warnings.append(
                f"column {path!r} has no value in any row, and neither the source, a model nor another partition has "
                "its type: it is left out until a run gives it one."
            )
    return warnings


def _with_types(schema: pa.Schema, kinds: dict[str, pa.DataType]) -> pa.Schema:
    for number, field in enumerate(schema):
        if field.name in kinds and not _is_known(field):
            try:
                schema = schema.set(number, field.with_type(unified(field.name, kinds[field.name], field.type)))
            except ContractError:  # here the column is a list, and the known type is not
                continue
    return schema


def _unknown(schema: pa.Schema) -> set[str]:
    """Return the columns whose type, or an inner type, is null."""
    return {field.name for field in schema if not _is_known(field)}


def _is_known(field: pa.Field) -> bool:
    return bool(_known_part(field.type) == field.type)


def _known_part(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without its struct fields of unknown type; None if no part of it is known."""
    if types.is_null(kind):
        return None
    if not types.is_nested(kind) or types.is_union(kind):
        return kind
    if types.is_struct(kind):
        fields = of_known_types(pa.schema(list(kind)))
        return pa.struct(list(fields)) if len(fields) else None
    field = kind.item_field if types.is_map(kind) else kind.value_field
    inner = _known_part(field.type)
    if inner is None or inner == field.type:
        return None if inner is None else kind
    field = field.with_type(inner)
    if types.is_map(kind):
        return pa.map_(kind.key_field, field)
    if types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)


def _paths(fields: Iterable[pa.Field], outer: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield each column and each struct field inside one as its path, such as `meta.notes`, and its type."""
    for field in fields:
        yield outer + field.name, field.type
        yield from _inner_paths(outer + field.name, field.type)


def _inner_paths(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if types.is_struct(kind):
        yield from _paths(kind, f"{path}.")
    elif types.is_nested(kind) and not types.is_union(kind):
        for number in range(kind.num_fields):
            yield path, kind.field(number).type
            yield from _inner_paths(path, kind.field(number).type)
