"""Read the rows of a published partition from the table of a database, to show them to a user."""

from collections.abc import Iterator
from datetime import date

import pyarrow as pa

from overnight.tasks.rows.published_text import inferred
from overnight.tasks.storage.database import engine


def rows_of(url: str, name: str, column: str, partition: str, rows_at_once: int) -> Iterator[pa.Table]:
    """Yield the rows of a published partition from the database at `url`, sorted by `row_id`.

    The tables lack the partition column.

    Args:
        name: The table, as `schema.table` or `table`.
        column: The partition column. The table of the partition `all` does not have it.
        partition: The date in ISO 8601, or `all`.
        rows_at_once: The number of rows in a yielded table; the last one may be shorter.
    """
    import sqlalchemy as sa

    schema, _, table_name = name.rpartition(".")
    day = {} if partition == "all" else {column: date.fromisoformat(partition)}
    with engine(url, "write").connect() as connection:
        table = sa.Table(table_name, sa.MetaData(), schema=schema or None, autoload_with=connection)
        wanted = sa.select(*(each for each in table.columns if each.name not in day))
        wanted = wanted.where(*(table.c[each] == value for each, value in day.items())).order_by(table.c.row_id)
        found = connection.execution_options(stream_results=True).execute(wanted)
        for rows in found.mappings().partitions(rows_at_once):
            yield pa.table({name: inferred([row[name] for row in rows]) for name in rows[0]})
