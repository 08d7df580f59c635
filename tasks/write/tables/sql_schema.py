"""Define the tables in a database: the published table, the table of loaded rows, and the record of publishes.

The published table is created if it is missing, and extended by the columns that it lacks. Its columns are never
dropped.
"""

import hashlib
from dataclasses import dataclass
from datetime import date
from itertools import starmap
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.state.run import Run
from overnight.tasks.write.tables.sql_types import sql_columns

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table


@dataclass(frozen=True)
class Target:
    """The table `name` (`schema.table` or `table`) of the database at `url`, and the run's partition of it."""

    url: str
    name: str
    run: Run

    @property
    def keys(self) -> dict[str, date | str]:
        """Return the values of the partition columns, days as dates; empty for the partition `all`."""
        return partition_values(self.run.partition_column, self.run.partition)

    def table(self, schema: pa.Schema) -> "Table":
        """Return the definition of the published table, with the key and the columns of `schema`."""
        import sqlalchemy as sa

        keys = [sa.Column(name, sql_type(value), primary_key=True) for name, value in self.keys.items()]
        return self._table(self.name.rpartition(".")[2], *keys, *_columns(schema))

    def loaded(self, schema: pa.Schema) -> "Table":
        """Return the definition of the attempt's own table, into which its rows are loaded before the publish."""
        owner = f"{self.run.job}/{self.run.partition}/{self.run.attempt}"
        return self._table(f"_overnight_{hashlib.sha256(owner.encode()).hexdigest()[:16]}", *_columns(schema))

    def publishes(self) -> "Table":
        """Return the definition of the table that records, by table and partition, which attempt published last."""
        import sqlalchemy as sa

        return self._table(
            "overnight_publishes",
            sa.Column("table_name", sa.Text(), primary_key=True),
            sa.Column("partition_name", sa.Text(), primary_key=True),
            *(sa.Column(name, sa.Text()) for name in ("job", "generation", "attempt")),
            sa.Column("rows_published", sa.BigInteger()),
            sa.Column("published_at", sa.DateTime(timezone=True)),
        )

    def _table(self, name: str, *columns: Any) -> "Table":
        import sqlalchemy as sa

        return sa.Table(name, sa.MetaData(), *columns, schema=self.name.rpartition(".")[0] or None)


def sql_type(value: date | str) -> Any:
    """Return the type of a partition column with this value."""
    import sqlalchemy as sa

    return sa.Date() if isinstance(value, date) else sa.Text()


def _columns(schema: pa.Schema) -> list[Any]:
    """Return the definitions of the key `row_id` and of the columns of `schema`."""
    import sqlalchemy as sa

    kinds = sql_columns(schema)
    kinds.pop("row_id", None)
    key = sa.Column("row_id", sa.Text(), primary_key=True)
    return [key, *starmap(sa.Column, kinds.items())]


def complete(connection: "Connection", target: Target, table: "Table") -> None:
    """Create the table in the database, or add the columns that it lacks. A lock excludes concurrent publishes."""
    import sqlalchemy as sa

    if columns_of(connection, table) >= {column.name for column in table.columns}:
        return
    lock_definitions(connection, target)
    names = columns_of(connection, table)
    if not names:
        table.create(connection)
        return
    quote, types = connection.dialect.identifier_preparer, connection.dialect.type_compiler_instance
    for column in table.columns:
        if column.name not in names:
            definition = f"{quote.quote(column.name)} {types.process(column.type)}"
            connection.execute(sa.text(f"ALTER TABLE {quote.format_table(table)} ADD COLUMN {definition}"))


def columns_of(connection: "Connection", table: "Table") -> set[str]:
    """Return the names of the columns that a table has in the database; empty if it does not exist."""
    import sqlalchemy as sa

    inspector = sa.inspect(connection)
    if not inspector.has_table(table.name, schema=table.schema):
        return set()
    return {column["name"] for column in inspector.get_columns(table.name, schema=table.schema)}


def lock_definitions(connection: "Connection", target: Target) -> None:
    """Prevent other publishes from creating or changing tables in PostgreSQL until this transaction ends.

    If two transactions create one table, the second would fail. Other databases need no such lock.
    """
    import sqlalchemy as sa

    if connection.dialect.name == "postgresql":
        schema = target.name.rpartition(".")[0] or None
        key = int.from_bytes(hashlib.sha256(f"overnight/{schema}".encode()).digest()[:7])
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
