"""Find types for columns that are null in all rows of a run: Arrow's type null does not fit other files of a table.

The types come from the source's schema, the models' columns, and the job's other partitions. If these lack the type,
the column is left out until a run has a value in it, as in Delta tables and databases. The receipt then has a warning.
"""

from collections.abc import Iterable
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
    """Return the schema without columns whose type, or an inner type, is null; the column `keep` stays in any case."""
    unknown = _unknown(schema) - {keep}
    return pa.schema([field for field in schema if field.name not in unknown])


def columns_left_out(records: list[Record], ready: Prepared) -> Columns:
    """Return the statistics, all nulls, of the columns that are left out because their type is unknown.

    `records` are the footers of the staged parts, which have these columns. `ready` is the publish that lacks them.
    """
    return describe(pa.table({name: pa.nulls(ready.rows) for name in _left_out(records, ready)}))


def warnings_of_left_out(records: list[Record], ready: Prepared) -> list[str]:
    """Return a sentence for each column that is left out because its type is unknown.

    `records` are the footers of the staged parts, which have these columns. `ready` is the publish that lacks them.
    """
    return [
        f"column {name!r} has no value in any row, and neither the source, a model nor another partition has its "
        "type: it is left out until a run gives it one."
        for name in _left_out(records, ready)
    ]


def _left_out(records: list[Record], ready: Prepared) -> list[str]:
    return sorted(_unknown(published_schema(records)) - set(ready.schema.names))


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
    """Return True if a type and its inner types are known."""
    if not types.is_nested(kind) or types.is_union(kind):
        return not types.is_null(kind)
    return all(_is_known(kind.field(place).type) for place in range(kind.num_fields))
