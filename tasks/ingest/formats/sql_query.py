"""A query of a database, by SQLAlchemy: its values bound, never pasted, its rows streamed, its errors told.

It knows nothing of units, rows or what they mean.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import InputError, OvernightError, StorageFailed
from overnight.tasks.state.database import engine

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.exc import DBAPIError

ROWS_AT_ONCE = 10_000


@contextlib.contextmanager
def connection(url: str) -> Iterator["Connection"]:
    """Yield a connection.

    Raises:
        JobError: The URL cannot work.
        StorageFailed: The database does not answer.
        InputError: The database refuses the connection's options or the query.
    """
    import sqlalchemy as sa

    shown = masked(url)
    made = engine(url, "ingest")
    try:
        opened = made.connect()
    except sa.exc.DBAPIError as error:
        raise _told(error, shown, "source.url") from None
    except Exception as error:  # of the driver itself, whose message may show what a variable stands for
        raise InputError(f"source.url: the driver of {shown} does not take it: {type(error).__name__}.") from None
    with opened:
        driver: Any = opened.connection.dbapi_connection
        if type(driver).__module__ == "sqlite3":
            driver.text_factory = _text_or_bytes
        try:
            yield opened
        except OvernightError:
            raise
        except sa.exc.DBAPIError as error:
            raise _told(error, shown, "source.query") from error
        except UnicodeDecodeError as error:  # of sqlite3, which decodes names and what SQLite says of them
            raise InputError(f"source.url: expected a database that is whole at {shown}, found {error}") from error


def rows(connection: "Connection", query: str, values: dict[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the rows of `query`, in which `{name}` stands for a value of `values`; some thousand held at a time.

    The first item has the names of the columns. Values are those of the driver, as they are.
    """
    from overnight.tasks.ingest.formats.bound_sql import BoundSql

    options = {"yield_per": ROWS_AT_ONCE, "sqlite_raw_colnames": True}
    with connection.execution_options(**options).execute(BoundSql(query, values)) as found:
        yield list(found.keys())
        yield from found


def _told(error: "DBAPIError", shown: str, setting: str) -> OvernightError:
    import sqlalchemy as sa

    what = f"{type(error.orig).__name__}: {' '.join(str(error.orig).split())}"
    if _is_passing(error):
        return StorageFailed(f"the database {shown} did not answer: {what}", "ingest")
    if type(error) is sa.exc.DatabaseError:  # and none of the kinds of it that blame a query
        return InputError(f"source.url: expected a database that is whole at {shown}, found {what}")
    if setting == "source.query":
        return InputError(f"{setting}: expected a query that the database answers, found {what}")
    return InputError(f"{setting}: {what}")


def _text_or_bytes(content: bytes) -> str | bytes:
    """What SQLite calls a text may be any bytes; bytes cost their row, where the driver would end the query."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _is_passing(error: "DBAPIError") -> bool:
    """Whether the database is to blame, and another attempt may find it well."""
    import sqlalchemy as sa

    if isinstance(error.orig, Exception) and type(error.orig).__module__ == "sqlite3":
        return "locked" in str(error.orig)  # it calls a wrong query operational too
    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or error.connection_invalidated
