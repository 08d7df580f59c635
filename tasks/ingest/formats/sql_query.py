"""A query of a database, by SQLAlchemy: values are bound, rows are streamed, and errors are translated.

It does not use units or the meaning of rows.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import InputError, OvernightError, StorageFailed
from overnight.tasks.storage.database import engine

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
    except Exception as error:  # from the driver itself, whose message may show the value of a variable
        raise InputError(f"source.url: the driver of {shown} does not accept it: {type(error).__name__}.") from None
    with opened:
        try:
            yield opened
        except OvernightError:
            raise
        except sa.exc.DBAPIError as error:
            raise _told(error, shown, "source.query") from error


def rows(connection: "Connection", query: str, values: dict[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the rows of `query`, in which `{name}` becomes a bound value of `values`; some thousand rows at a time.

    The first item has the names of the columns. Values are unchanged from the driver.
    """
    from overnight.tasks.ingest.formats.bound_sql import BoundSql

    options = {"yield_per": ROWS_AT_ONCE, "sqlite_raw_colnames": True}
    with connection.execution_options(**options).execute(BoundSql(query, values)) as found:
        yield list(found.keys())
        yield from found


def _told(error: "DBAPIError", shown: str, setting: str) -> OvernightError:
    what = f"{type(error.orig).__name__}: {' '.join(str(error.orig).split())}"
    if _is_passing(error):
        return StorageFailed(f"the database {shown} did not answer: {what}", "ingest")
    return InputError(f"{setting}: {what}")


def _is_passing(error: "DBAPIError") -> bool:
    """Return True if the database is the cause, and another attempt may succeed."""
    import sqlalchemy as sa

    if isinstance(error.orig, Exception) and type(error.orig).__module__ == "sqlite3":
        return "locked" in str(error.orig)  # the driver reports a wrong query as operational too
    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or error.connection_invalidated
