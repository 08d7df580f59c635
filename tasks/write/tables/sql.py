"""The database table of a sink: load rows into a table beside it, and insert them in one transaction.

`sql_schema.py` defines its tables. This file reads Parquet files and does not use receipts.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import CheckFailed, JobError
from overnight.tasks.state import lease
from overnight.tasks.write.merge.merge_parts import MergedFile
from overnight.tasks.write.tables.database import SECONDS_TO_WAIT, engine
from overnight.tasks.write.tables.sql_schema import Target, columns_of, complete, lock_definitions
from overnight.tasks.write.tables.sql_types import sql_rows

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table
    from sqlalchemy.dialects import postgresql

ROWS_AT_ONCE = 5_000


def refuse_foreign_rows(target: Target) -> None:
    """Raise `CheckFailed` if the partition has rows that this job did not write, or if the table has no key columns.

    A table that does not exist passes.
    """
    import sqlalchemy as sa

    with transaction(target) as connection:
        there = columns_of(connection, target.table(pa.schema([])))
        if not there:
            return
        if missing := {"row_id", *target.day} - there:
            raise CheckFailed(
                f"{target.name}: expected a table with a column {min(missing)}, found {', '.join(sorted(there))}. "
                "Set sink.partition_column, or choose another sink.table."
            )
        row = last_publish(connection, target)
        if row and row.job == target.run.job:
            return
        if row and row.job:
            raise CheckFailed(
                f"{target.name}: {target.run.partition} was published by the job {row.job!r}, not by "
                f"{target.run.job!r}. Give each job a table of its own."
            )
        table = target.table(pa.schema([]))
        if connection.execute(sa.select(table.c.row_id).where(*_own(table, target)).limit(1)).first():
            raise CheckFailed(
                f"{target.name} has rows of {target.run.partition} that Overnight did not publish. Nothing was "
                "changed: delete them, or choose another sink.table."
            )


def load(target: Target, files: list[MergedFile], schema: pa.Schema) -> None:
    """Load the rows of the files into a table beside the target, and test that the target accepts their columns.

    `schema` has the columns of the files. Raise `JobError` if the database has no `INSERT ... ON CONFLICT`.
    """
    loaded = target.loaded(schema)
    names = [column.name for column in loaded.columns]
    drop_loaded(target)
    with transaction(target) as connection:
        if not hasattr(connection.dialect.statement_compiler, "visit_on_conflict_do_update"):
            raise JobError(
                f"{target.url}: {connection.dialect.name} has no INSERT ... ON CONFLICT, which the sink needs. "
                "PostgreSQL and SQLite have it.",
                "write",
            )
        loaded.create(connection)
    for file in files:
        with file.place.open() as opened, transaction(target) as connection:
            for batch in pq.ParquetFile(opened).iter_batches(ROWS_AT_ONCE):
                connection.execute(loaded.insert(), sql_rows(pa.table(batch), names))
    with transaction(target) as connection:
        _put_in(connection, target, schema, limit=0)
        connection.rollback()


def partition_rows(target: Target) -> int:
    """Return the number of rows in the partition; 0 if the table does not exist."""
    import sqlalchemy as sa

    with transaction(target) as connection:
        table = target.table(pa.schema([]))
        if not columns_of(connection, table):
            return 0
        counted = sa.select(sa.func.count()).select_from(table).where(*_own(table, target))
        return int(connection.execute(counted).scalar() or 0)


def replace_partition(target: Target, schema: pa.Schema, rows: int, keep: bool = False) -> None:
    """Replace the partition's rows by the loaded ones, in one transaction; with `keep`, add the loaded ones instead.

    `schema` has the columns of the loaded rows. `rows` is the number of rows that the partition then has, which is
    recorded. Raise `LeaseLost` if a later run has taken over.
    """
    import sqlalchemy as sa

    run, publishes = target.run, target.publishes()
    with transaction(target) as connection:
        found = last_publish(connection, target)
        if found and found.attempt == run.attempt:
            return  # the response to an earlier try was lost
        # under the lock: a run that takes over now waits for it, and sees the result
        lease.check(run.ledger, run.token)
        _put_in(connection, target, schema)
        table, loaded = target.table(schema), target.loaded(schema)
        kept = sa.select(loaded.c.row_id).where(loaded.c.row_id == table.c.row_id)
        if not keep:
            connection.execute(table.delete().where(*_own(table, target), ~sa.exists(kept)))
        about: dict[str, Any] = {name: getattr(run, name) for name in ("job", "generation", "attempt")}
        about |= {"rows_published": rows, "published_at": datetime.now(UTC)}
        connection.execute(publishes.update().where(*_marker(publishes, target)).values(**about))


def has_committed(target: Target) -> bool:
    """Return True if the run's attempt was the last to commit. Wait first for a commit that is still running.

    If it is False, the attempt cannot commit any more, because it does not hold the lease.
    """
    with transaction(target) as connection:
        found = last_publish(connection, target)
        return bool(found and found.attempt == target.run.attempt)


def drop_loaded(target: Target) -> None:
    """Drop the table into which the attempt's rows were loaded, if it exists."""
    with transaction(target) as connection:
        target.loaded(pa.schema([])).drop(connection, checkfirst=True)


def _put_in(connection: "Connection", target: Target, schema: pa.Schema, limit: int | None = None) -> None:
    """Complete the table's columns, and upsert the loaded rows."""
    import sqlalchemy as sa

    table, loaded = target.table(schema), target.loaded(schema)
    complete(connection, target, table)
    names, keys = [column.name for column in loaded.columns], [column.name for column in table.primary_key]
    days = [sa.literal(value, sa.Date()) for value in target.day.values()]
    # In a SELECT without WHERE, SQLite parses ON CONFLICT as the condition of a join.
    rows = sa.select(*days, *loaded.columns).where(sa.true()).limit(limit)
    statement = _insert(connection, table).from_select([*target.day, *names], rows)
    if news := {name: statement.excluded[name] for name in names if name not in keys}:
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=news))
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=keys))


def _insert(connection: "Connection", table: "Table") -> "postgresql.Insert":
    """Return an INSERT that supports ON CONFLICT; SQLAlchemy has one class per database."""
    from sqlalchemy.dialects import postgresql, sqlite

    dialects: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    insert: postgresql.Insert = dialects.insert(table)
    return insert


def last_publish(connection: "Connection", target: Target) -> Any:
    """Return the partition's row of the table `overnight_publishes`, locked until the transaction ends.

    A missing row, or a missing table, is created.
    """
    import sqlalchemy as sa

    publishes = target.publishes()
    if not columns_of(connection, publishes):
        lock_definitions(connection, target)
        publishes.create(connection, checkfirst=True)
    key = {"table_name": target.name, "partition_name": target.run.partition}
    connection.execute(_insert(connection, publishes).values(key).on_conflict_do_nothing())
    return connection.execute(sa.select(publishes).where(*_marker(publishes, target)).with_for_update()).first()


def _marker(publishes: "Table", target: Target) -> list[Any]:
    return [publishes.c.table_name == target.name, publishes.c.partition_name == target.run.partition]


def _own(table: "Table", target: Target) -> list[Any]:
    return [table.c[name] == value for name, value in target.day.items()]


@contextlib.contextmanager
def transaction(target: Target) -> Iterator["Connection"]:
    """Yield a connection in a transaction that commits at the end of the body, and rolls back if the body raises.

    PostgreSQL ends the transaction if it is idle for a minute.
    """
    import sqlalchemy as sa

    with engine(target.url).begin() as connection:
        if connection.dialect.name == "postgresql":
            limit = f"SET LOCAL idle_in_transaction_session_timeout = '{SECONDS_TO_WAIT}s'"
            connection.execute(sa.text(limit))
        yield connection
