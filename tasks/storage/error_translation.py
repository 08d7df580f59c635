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


@contextlib.contextmanager
def translate_storage_errors(verb: str, place: object, local_path: str = "") -> Iterator[None]:
    """Raise `AccessDenied` for missing permission or space, and `ServiceUnavailable` if a later attempt may succeed.

    Other errors of the body are raised unchanged. `verb` and `place` are for the message, such as "cannot read
    s3://bucket/name". `local_path` is the path of the file if it is on a disk: the message then has the free bytes of
    the disk.
    """
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
                f"cannot {verb} {place}: {type(error).__name__}: {error}. Nothing was published; "
                "run again to resume where the staged parts end."
            ) from error
        raise


def _free(path: str) -> str:
    """Return a phrase with the free bytes of the disk, measured at the nearest directory that exists."""
    if not path:
        return ""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return f" ({shutil.disk_usage(place).free:,} bytes free in {place})"


@contextlib.contextmanager
def translate_listing_errors(place: str) -> Iterator[None]:
    """Raise `InputError` if the storage cannot list inputs, and `ServiceUnavailable` if a later attempt may list them.

    `place` names the inputs in the message. Errors of the body that are not about the storage are raised unchanged.
    """
    try:
        yield
    except OvernightError:
        raise
    except NoInputs as error:
        raise InputError(f"source.path: {error}") from None
    except FileNotFoundError as error:
        why = str(error).rstrip(".")
        raise InputError(f"source.path: expected a directory or bucket, found nothing at {place} ({why}).") from error
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
    """Raise `ServiceUnavailable` if the database does not answer the body, and `InputError` if it refuses the request.

    `database` and `setting`, a key such as `source.query`, are for the message. If `shows_cause` is False, a traceback
    leaves out the driver's own error, which may contain a password.
    """
    import sqlalchemy as sa

    try:
        yield
    except sa.exc.DBAPIError as error:
        what = f"{type(error.orig).__name__}: {' '.join(str(error.orig).split())}"
        known: OvernightError = InputError(f"{setting}: {what}")
        if _is_locked(error) if _is_of_sqlite(error) else _is_down(error):
            known = ServiceUnavailable(f"the database {database} did not answer: {what}", "ingest")
        elif type(error) is sa.exc.DatabaseError and not _is_denied(error):  # its subclasses blame the query
            known = InputError(f"source.url: expected a whole database at {database}, found {what}")
        elif setting == "source.query":
            known = InputError(f"{setting}: expected a query that the database answers, found {what}")
        raise known from (error if shows_cause else None)
    except UnicodeDecodeError as error:  # from sqlite3, which decodes names and SQLite's messages
        raise InputError(f"source.url: expected a whole database at {database}, found {error}") from error


@contextlib.contextmanager
def translate_publish_errors(database: str) -> Iterator[None]:
    """Raise `ServiceUnavailable` if the database does not answer the body, and `ContractError` if it refuses the rows.

    `database` names the database in the message.
    """
    import sqlalchemy as sa

    try:
        yield
    except OvernightError:
        raise
    except sa.exc.DBAPIError as error:
        said = " ".join(str(error.orig).split())
        if _is_down(error):
            raise ServiceUnavailable(
                f"cannot publish to {database}: {said}. Nothing was published; run again to resume where the staged "
                "parts end.",
                "write",
            ) from None
        raise ContractError(f"{database} does not take the rows: {said}. Nothing was published.", "write") from None


def _is_down(error: "DBAPIError") -> bool:
    """Return True if the connection or the server caused the error, so that a later attempt may succeed."""
    import sqlalchemy as sa

    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or error.connection_invalidated


def _is_of_sqlite(error: "DBAPIError") -> bool:
    """Return True if SQLite raised the error. SQLite raises an `OperationalError` for a wrong query, too."""
    return isinstance(error.orig, Exception) and type(error.orig).__module__ == "sqlite3"


def _is_denied(error: "DBAPIError") -> bool:
    """Return True if SQLite refused the statement, because it does more than read the database."""
    return getattr(error.orig, "sqlite_errorname", "") == "SQLITE_AUTH"


def _is_locked(error: "DBAPIError") -> bool:
    return "locked" in str(error.orig)
