"""A database for a sink: an engine with reliable transactions."""

from typing import TYPE_CHECKING, Any

from overnight.tasks.storage import database

if TYPE_CHECKING:
    from sqlalchemy import Engine

SECONDS_TO_WAIT = 60  # for a lock of another publish; a frozen publish loses its own lock after this time


def engine(url: str) -> "Engine":
    """Return a SQLAlchemy engine for publishes to the database at `url`, whose values it writes as JSON where needed.

    Raise `JobError` for a URL that SQLAlchemy does not accept, or whose driver is not installed.
    """
    made = database.engine(url, "write", json_serializer=_as_json)
    if made.dialect.name == "sqlite":
        _begin_at_once(made)
    return made


def _as_json(value: Any) -> str:
    from overnight.tasks.write.merge.json_values import dump, spelled

    return dump(spelled(value)).decode()


def _begin_at_once(made: "Engine") -> None:
    """Make SQLite's transactions include table definitions, and begin with the lock on the file."""
    import sqlalchemy as sa

    @sa.event.listens_for(made, "connect")
    def _connect(connection, _) -> None:  # type: ignore[no-untyped-def]
        connection.isolation_level = None  # sqlite3 would commit before a table definition
        connection.execute(f"PRAGMA busy_timeout = {SECONDS_TO_WAIT * 1000}")

    @sa.event.listens_for(made, "begin")
    def _begin(connection) -> None:  # type: ignore[no-untyped-def]
        connection.exec_driver_sql("BEGIN IMMEDIATE")
