"""Runs a query of a database by SQLAlchemy: values are bound, rows are streamed, and errors are translated.

This file does not use units or the meaning of rows.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import InputError, OvernightError
from overnight.tasks.ingest.formats.sql_types import UnreadValue
from overnight.tasks.storage.database import engine
from overnight.tasks.storage.error_translation import translate_query_errors

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, TextClause

# By dialect of SQLAlchemy. PostgreSQL and SQLite have means of their own.
READ_ONLY = {
    "mysql": ("SET SESSION TRANSACTION READ ONLY",),
    "mariadb": ("SET SESSION TRANSACTION READ ONLY",),
    "oracle": ("SET TRANSACTION READ ONLY",),
    "duckdb": ("SET enable_external_access = false", "SET lock_configuration = true"),
}
# SELECT, READ, FUNCTION and RECURSIVE of https://sqlite.org/c3ref/c_alter_table.html: not ATTACH, not PRAGMA
SQLITE_READS = {21, 20, 31, 33}
ROWS_AT_ONCE = 50  # a row may have megabytes, and a driver holds what it fetches together


@contextlib.contextmanager
def connection(url: str) -> Iterator["Connection"]:
    """Yield a connection that only reads, and translate the errors of the body's queries."""
    address = masked(url)
    database = _read_only(engine(url, "ingest"))
    try:
        with translate_query_errors(address, "source.url", shows_cause=False):
            session = database.connect()
    except OvernightError:
        raise
    except Exception as error:  # from the driver itself, whose message may show the value of a variable
        raise InputError(f"source.url: the driver of {address} does not accept it: {type(error).__name__}.") from None
    with session, translate_query_errors(address, "source.query"):
        driver: Any = session.connection.dbapi_connection
        if type(driver).__module__ == "sqlite3":
            driver.text_factory = _text_or_bytes
        if type(driver).__module__.startswith("psycopg"):
            _read_any_time(driver)
        yield session


def rows(
    connection: "Connection", query: str, values: dict[str, Any], at_once: int = ROWS_AT_ONCE
) -> Generator[Sequence[Any], None, None]:
    """Yield the names of the columns, and then the rows of `query`, whose values are as the driver returns them."""
    options = {"yield_per": at_once, "sqlite_raw_colnames": True}
    with connection.execution_options(**options).execute(_statement(query, values)) as result:
        yield list(result.keys())
        yield from result


def _statement(query: str, values: dict[str, Any]) -> "TextClause":
    from sqlalchemy import bindparam, text
    from sqlalchemy.types import NullType

    # All colons of the query are escaped, so that SQLAlchemy takes none for the beginning of a parameter.
    query = query.replace(":", "\\:")
    parameters = []
    for name, value in values.items():
        if f"{{{name}}}" in query:
            query = query.replace(f"{{{name}}}", f" :{name} ")
            # The value has no type here, because the driver would send it: PostgreSQL compares no date with a text.
            parameters.append(bindparam(name, value, NullType()))
    return text(query).bindparams(*parameters)


def _read_only(database: "Engine") -> "Engine":
    """Return the engine, whose connections write nothing and open no other database, as far as its driver can."""
    import sqlalchemy as sa

    kind = database.dialect.name
    if kind == "sqlite":
        sa.event.listen(database, "do_connect", _open_to_read)
        sa.event.listen(database, "connect", lambda driver, _: _only_read_sqlite(driver))
    if kind in READ_ONLY:
        sa.event.listen(database, "connect", lambda driver, _: _execute(driver, READ_ONLY[kind]))
    if kind == "postgresql":
        return database.execution_options(postgresql_readonly=True)
    return database


def _open_to_read(_: Any, __: Any, arguments: list[Any], options: dict[str, Any]) -> None:
    """Make the driver open an SQLite file that exists, to read it; a URI of SQLite has a mode of its own."""
    if not options.get("uri") and arguments[0] != ":memory:" and "\0" not in arguments[0]:
        arguments[0] = f"file:{quote(arguments[0])}?mode=ro"
        options["uri"] = True


def _only_read_sqlite(driver: Any) -> None:
    import sqlite3

    def authorize(action: int, *_: Any) -> int:
        return sqlite3.SQLITE_OK if action in SQLITE_READS else sqlite3.SQLITE_DENY

    driver.set_authorizer(authorize)


def _execute(driver: Any, statements: Sequence[str]) -> None:
    with contextlib.closing(driver.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)


def _read_any_time(driver: Any) -> None:
    """Read a date or time that Python lacks, such as `infinity`, as an `UnreadValue`: only its row is bad."""
    from psycopg import DataError
    from psycopg.types import datetime as loaders

    for name in ("Date", "Timestamp", "Timestamptz", "Time", "Timetz"):
        loader: Any = getattr(loaders, f"{name}Loader")

        def load(self: Any, data: Any, read: Any = loader.load) -> Any:
            try:
                return read(self, data)
            except DataError:
                return UnreadValue(bytes(data).decode())

        driver.adapters.register_loader(name.lower(), type(f"Any{name}", (loader,), {"load": load}))


def _text_or_bytes(content: bytes) -> str | bytes:
    """Return a text of SQLite, or its bytes if they are not UTF-8: then only the row is bad, and not the query."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
