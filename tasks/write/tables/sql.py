"""The database table of a sink: load rows into a table beside it, insert them in one transaction, and read them.

`sql_schema.py` defines its tables. This file reads Parquet files and does not use receipts.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.errors import CheckFailed, JobError
from overnight.tasks.rows.published_text import inferred
from overnight.tasks.state import lease
from overnight.tasks.storage import database
from overnight.tasks.write.merge.json_values import dump, spelled
from overnight.tasks.write.merge.merge_parts import MergedFile
from overnight.tasks.write.tables.sql_schema import Target, columns_of, complete, lock_definitions, sql_type
from overnight.tasks.write.tables.sql_types import sql_rows

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table
    from sqlalchemy.dialects import postgresql

ROWS_AT_ONCE = 5_000
SECONDS_TO_WAIT = 60  # for a lock of another publish; a frozen publish loses its own lock after this time
NO_COLUMNS = pa.schema([])


def engine(url: str) -> "Engine":
    """Return a SQLAlchemy engine for publishes to the database at `url`. SQLite's transactions lock the file first."""
    import sqlalchemy as sa

    result = database.engine(url, "write", json_serializer=lambda value: dump(spelled(value)).decode())
    if result.dialect.name == "sqlite":

        @sa.event.listens_for(result, "connect")
        def _connect(connection, _) -> None:  # type: ignore[no-untyped-def]
            connection.isolation_level = None  # sqlite3 would commit before a table definition
            connection.execute(f"PRAGMA busy_timeout = {SECONDS_TO_WAIT * 1000}")

        @sa.event.listens_for(result, "begin")
        def _begin(connection) -> None:  # type: ignore[no-untyped-def]
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return result


@contextlib.contextmanager
def transaction(target: Target) -> Iterator["Connection"]:
    """Yield a connection in a transaction. PostgreSQL ends it if it is idle for a minute."""
    import sqlalchemy as sa

    with engine(target.url).begin() as connection:
        if connection.dialect.name == "postgresql":
            limit = f"SET LOCAL idle_in_transaction_session_timeout = '{SECONDS_TO_WAIT}s'"
            connection.execute(sa.text(limit))
        yield connection


def refuse_foreign_rows(target: Target) -> None:
    """Raise `CheckFailed` if the partition has rows that this job did not write, or if the table has no key columns."""
    import sqlalchemy as sa

    run, table = target.run, target.table(NO_COLUMNS)
    with transaction(target) as connection:
        columns = columns_of(connection, table)
        if not columns:
            return
        if missing := {"row_id", *target.keys} - columns:
            raise CheckFailed(
                f"{target.name}: expected a table with a column {min(missing)}, found {', '.join(sorted(columns))}. "
                "Set sink.partition_column, or choose another sink.table."
            )
        row = last_publish(connection, target)
        if row and row.job == run.job:
            return
        if row and row.job:
            raise CheckFailed(
                f"{target.name}: {run.partition} was published by the job {row.job!r}, not by {run.job!r}. "
                "Give each job a table of its own."
            )
        if connection.execute(sa.select(table.c.row_id).where(*_own(table, target)).limit(1)).first():
            raise CheckFailed(
                f"{target.name} has rows of {run.partition} that Overnight did not publish. Nothing was "
                "changed: delete them, or choose another sink.table."
            )


def load(target: Target, files: list[MergedFile], schema: pa.Schema) -> None:
    """Load the rows of the files into a table beside the target, and test that the target accepts their columns.

    Raise `JobError` if the database has no `INSERT ... ON CONFLICT`.
    """
    table = target.loaded(schema)
    names = [column.name for column in table.columns]
    drop_loaded(target)
    with transaction(target) as connection:
        if not hasattr(connection.dialect.statement_compiler, "visit_on_conflict_do_update"):
            raise JobError(
                f"{target.url}: {connection.dialect.name} has no INSERT ... ON CONFLICT, which the sink needs. "
                "PostgreSQL and SQLite have it.",
                "write",
            )
        table.create(connection)
    for file in files:
        with file.place.open() as content, transaction(target) as connection:
            for batch in pq.ParquetFile(content).iter_batches(ROWS_AT_ONCE):
                connection.execute(table.insert(), sql_rows(pa.table(batch), names))
    with transaction(target) as connection:
        _upsert(connection, target, schema, limit=0)
        connection.rollback()


def partition_rows(target: Target) -> int:
    """Return the number of rows in the partition; 0 if the table does not exist."""
    import sqlalchemy as sa

    table = target.table(NO_COLUMNS)
    with transaction(target) as connection:
        if not columns_of(connection, table):
            return 0
        query = sa.select(sa.func.count()).select_from(table).where(*_own(table, target))
        return int(connection.execute(query).scalar() or 0)


def replace_partition(target: Target, schema: pa.Schema, rows: int, keep: bool = False) -> None:
    """Replace the partition's rows by the loaded ones, in one transaction; with `keep`, add the loaded ones instead.

    `rows` is the number of rows that the partition then has. Raise `LeaseLost` if a later run has taken over.
    """
    import sqlalchemy as sa

    run, publishes = target.run, target.publishes()
    with transaction(target) as connection:
        publish = last_publish(connection, target)
        if publish and publish.attempt == run.attempt:
            return  # the response to an earlier try was lost
        # under the lock: a run that takes over now waits for it, and sees the result
        lease.check(run.ledger, run.token)
        _upsert(connection, target, schema)
        table, source = target.table(schema), target.loaded(schema)
        if not keep:
            stays = sa.exists(sa.select(source.c.row_id).where(source.c.row_id == table.c.row_id))
            connection.execute(table.delete().where(*_own(table, target), ~stays))
        about: dict[str, Any] = {name: getattr(run, name) for name in ("job", "generation", "attempt")}
        about |= {"rows_published": rows, "published_at": datetime.now(UTC)}
        connection.execute(publishes.update().where(*_marker(publishes, target)).values(**about))


def has_committed(target: Target) -> bool:
    """Return True if the run's attempt was the last to commit, after a commit that is still running has ended.

    If it is False, the attempt cannot commit any more, because it does not hold the lease.
    """
    with transaction(target) as connection:
        publish = last_publish(connection, target)
        return bool(publish and publish.attempt == target.run.attempt)


def drop_loaded(target: Target) -> None:
    """Drop the table into which the attempt's rows were loaded, if it exists."""
    with transaction(target) as connection:
        target.loaded(NO_COLUMNS).drop(connection, checkfirst=True)


def rows_of(url: str, name: str, columns: str, partition: str, rows_at_once: int) -> Iterator[pa.Table]:
    """Yield the rows of a published partition without its columns, sorted by `row_id`, `rows_at_once` to a table.

    `name` is `schema.table` or `table`, and `columns` the partition columns, which a table of `all` does not have.
    """
    import sqlalchemy as sa

    schema, _, table_name = name.rpartition(".")
    own = partition_values(columns, partition)
    with database.engine(url, "write").connect() as connection:
        table = sa.Table(table_name, sa.MetaData(), schema=schema or None, autoload_with=connection)
        query = sa.select(*(item for item in table.columns if item.name not in own)).order_by(table.c.row_id)
        for partition_column, value in own.items():
            query = query.where(table.c[partition_column] == value)
        result = connection.execution_options(stream_results=True).execute(query)
        for rows in result.mappings().partitions(rows_at_once):
            yield pa.table({key: inferred([row[key] for row in rows]) for key in rows[0]})


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


def _upsert(connection: "Connection", target: Target, schema: pa.Schema, limit: int | None = None) -> None:
    """Complete the table's columns, and upsert the loaded rows."""
    import sqlalchemy as sa

    table, source = target.table(schema), target.loaded(schema)
    complete(connection, target, table)
    names, keys = [column.name for column in source.columns], [column.name for column in table.primary_key]
    own = [sa.literal(value, sql_type(value)) for value in target.keys.values()]
    # In a SELECT without WHERE, SQLite parses ON CONFLICT as the condition of a join.
    rows = sa.select(*own, *source.columns).where(sa.true()).limit(limit)
    statement = _insert(connection, table).from_select([*target.keys, *names], rows)
    if updates := {name: statement.excluded[name] for name in names if name not in keys}:
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=updates))
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=keys))


def _insert(connection: "Connection", table: "Table") -> "postgresql.Insert":
    """Return an INSERT that supports ON CONFLICT; SQLAlchemy has one class per database."""
    from sqlalchemy.dialects import postgresql, sqlite

    dialects: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    insert: postgresql.Insert = dialects.insert(table)
    return insert


def _marker(publishes: "Table", target: Target) -> list[Any]:
    return [publishes.c.table_name == target.name, publishes.c.partition_name == target.run.partition]


def _own(table: "Table", target: Target) -> list[Any]:
    return [table.c[name] == value for name, value in target.keys.items()]
