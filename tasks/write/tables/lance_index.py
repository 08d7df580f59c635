"""The vector index of a Lance table: which column can have one, and how it follows the table's rows."""

import math

import pyarrow as pa

from overnight.tasks.errors import ContractError
from overnight.tasks.storage.location import Location
from overnight.tasks.write.tables.lance import open_table

INDEXED_ROWS = 5_000


def refuse_no_vectors(schema: pa.Schema, column: str) -> None:
    """Raise `ContractError` unless the column has fixed-size lists of floats, which a vector index needs.

    A `schema` without columns, of a partition without rows, passes.
    """
    if not len(schema):
        return  # no rows
    kind = schema.field(column).type if column in schema.names else None
    if kind is None or not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
        raise ContractError(
            f"sink.index: expected a column {column!r} of embeddings, all of one length, found {kind or 'none'} among "
            f"{', '.join(schema.names)}.",
            "write",
        )


def bring_index_up_to_date(sink: Location, column: str, metric: str) -> None:
    """Add the new rows of the Lance table in `sink` to the vector index of the column `column`.

    If there is no index, create it with the distance `metric`, such as `cosine`. A table of fewer than `INDEXED_ROWS`
    vectors gets no index.
    """
    table = open_table(sink)
    rows = table.count_rows(f"{column} IS NOT NULL") if table and column in table.schema.names else 0
    if table is None or rows < INDEXED_ROWS:
        return
    if any(column in index.field_names for index in table.describe_indices()):
        table.optimize.optimize_indices()
        return
    table.create_index(column, "IVF_FLAT", metric=metric, num_partitions=round(math.sqrt(rows)))
