"""Translates errors of libraries to errors of Overnight, which name the operation, the place and the remedy.

Each function is a context manager for one use: a store, a listing of inputs, a query, or a publish to a database.
Errors without a rule are raised unchanged. `transient_errors.py` decides for which errors a later attempt may succeed.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from overnight.tasks.errors import AccessDenied, ContractError, InputError, OvernightError, ServiceUnavailable
from overnight.tasks.storage.file_info import NoInputs, archived
from overnight.tasks.storage.transient_errors import is_forbidden, is_full, is_passing

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

CLIENTS = frozenset({"botocore", "aiobotocore", "aiohttp"})  # their errors are about credentials or an endpoint
RESUMES = "run again to resume where the staged parts end."


@contextlib.contextmanager
def translate_storage_errors(verb: str, place: object, local_path: str = "") -> Iterator[None]:
    """Raise `AccessDenied` if a user must act, and `ServiceUnavailable` if a later attempt may `verb` the `place`."""
    try:
        yield
    except OvernightError:
        raise
    except Exception as error:
        if reason := archived(error):
            raise AccessDenied(f"cannot {verb} {place}: {reason}.") from error
        if is_full(error):
            raise AccessDenied(
                f"cannot {verb} {place}: no space left{_free(local_path)}. Nothing was published. Make room there, "
                "then run again: it resumes where the staged parts end."
            ) from error
        if is_forbidden(error):
            raise AccessDenied(
                f"no permission to {verb} {place}: {error}. Nothing was published. Grant it to the user or the "
                "credentials that the job runs with, then run again."
            ) from error
        if is_passing(error):
            raise ServiceUnavailable(
                f"cannot {verb} {place}: {type(error).__name__}: {error}. Nothing was published; {RESUMES}"
            ) from error
        raise


def _free(path: str) -> str:
    """Return a phrase with the free bytes of the disk, measured at the nearest directory that exists."""
    if not path:
        return ""
    folder = Path(path).absolute()
    while not folder.exists():
        folder = folder.parent
    return f" ({shutil.disk_usage(folder).free:,} bytes free in {folder})"


@contextlib.contextmanager
def translate_listing_errors(place: str) -> Iterator[None]:
    """Raise `InputError` if a store cannot list inputs, and `ServiceUnavailable` if a later attempt may list them."""
    try:
        yield
    except OvernightError:
        raise
    except NoInputs as error:
        raise InputError(f"source.path: {error}") from None
    except FileNotFoundError as error:
        reason = str(error).rstrip(".")
        raise InputError(
            f"source.path: expected a directory or bucket, found nothing at {place} ({reason})."
        ) from error
    except PermissionError as error:
        raise InputError(f"source.path: no permission to list {place}: {error}") from error
    except Exception as error:
        if is_passing(error):
            raise ServiceUnavailable(f"cannot list {place}: {type(error).__name__}: {error}", "ingest") from error
        if isinstance(error, OSError):
            raise InputError(f"source.path: cannot list {place}: {error}") from error
        if type(error).__module__.split(".")[0] not in CLIENTS:
            raise
        raise InputError(
            f"source.path: cannot list {place}: {error}. Check the credentials and the endpoint in the environment, "
            "or set anonymous: true for a public bucket."
        ) from error


@contextlib.contextmanager
def translate_query_errors(database: str, setting: str, shows_cause: bool = True) -> Iterator[None]:
    """Raise `ServiceUnavailable` if the database does not answer, and `InputError` if it refuses the request.

    Without `shows_cause`, a traceback leaves out the driver's own error, which may contain a password.
    """
    import sqlalchemy as sa

    try:
        yield
    except sa.exc.DBAPIError as error:
        message = f"{type(error.orig).__name__}: {_in_one_line(error)}"
        is_of_sqlite = isinstance(error.orig, Exception) and type(error.orig).__module__ == "sqlite3"
        # SQLite raises an `OperationalError` for a wrong query, too, and SQLITE_AUTH for one that does more than read.
        is_unavailable = "locked" in str(error.orig) if is_of_sqlite else _is_unavailable(error)
        is_refusal = getattr(error.orig, "sqlite_errorname", "") == "SQLITE_AUTH"
        overnight_error: OvernightError = InputError(f"{setting}: {message}")
        if is_unavailable:
            overnight_error = ServiceUnavailable(f"the database {database} did not answer: {message}", "ingest")
        elif type(error) is sa.exc.DatabaseError and not is_refusal:  # its subclasses blame the query
            overnight_error = InputError(f"source.url: expected a whole database at {database}, found {message}")
        elif setting == "source.query":
            overnight_error = InputError(f"{setting}: expected a query that the database answers, found {message}")
        raise overnight_error from (error if shows_cause else None)
    except UnicodeDecodeError as error:  # from sqlite3, which decodes names and SQLite's messages
        raise InputError(f"source.url: expected a whole database at {database}, found {error}") from error


@contextlib.contextmanager
def translate_publish_errors(database: str) -> Iterator[None]:
    """Raise `ServiceUnavailable` if the database does not answer, and `ContractError` if it refuses the rows."""
    import sqlalchemy as sa

    try:
        yield
    except sa.exc.DBAPIError as error:
        message = _in_one_line(error)
        if _is_unavailable(error):
            raise ServiceUnavailable(
                f"cannot publish to {database}: {message}. Nothing was published; {RESUMES}", "write"
            ) from None
        raise ContractError(f"{database} does not take the rows: {message}. Nothing was published.", "write") from None


def _in_one_line(error: "DBAPIError") -> str:
    return " ".join(str(error.orig).split())


def _is_unavailable(error: "DBAPIError") -> bool:
    """Return True if the connection or the server caused the error, so that a later attempt may succeed."""
    import sqlalchemy as sa

    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or error.connection_invalidated
