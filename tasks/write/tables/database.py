"""A database by URL: kept as the job file writes it, its `${ENV_VAR}` filled in where it is used.

A password is written as `${ENV_VAR}` only, so that no receipt, log or task holds one; it may contain any character.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from pydantic import AfterValidator, Field

from overnight.tasks.config.extras import missing
from overnight.tasks.errors import ContractError, JobError, OvernightError, StorageFailed
from overnight.tasks.storage.location import expand

if TYPE_CHECKING:
    from sqlalchemy import Engine

VARIABLE = re.compile(r"\$\{[^}]*\}")
SECRETS = re.compile(r"[?&]([^=&]*(?:pass|secret|token|key)[^=&]*)=([^&]*)", re.IGNORECASE)
SECONDS_TO_WAIT = 60  # for a lock of another publish; and a publish that froze gives up its own after that


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if not rest and not VARIABLE.fullmatch(url):
        raise ValueError("expected a URL as SQLAlchemy takes it, for example postgresql+psycopg://me@host/database")
    user, at, _ = rest.rpartition("@")
    password = user.partition(":")[2] if at else ""
    if password and not VARIABLE.fullmatch(password):
        raise ValueError("the password stands in it; write ${ENV_VAR} in its place, and set that where the job runs")
    for name, value in SECRETS.findall(url):
        if value and not VARIABLE.fullmatch(value) and "/" not in value:  # a path leads to a file
            raise ValueError(f"{name} stands in it; write ${{ENV_VAR}} in its place, and set that where the job runs")
    if scheme.startswith("sqlite") and not rest.startswith(("//", "/${", "${")):
        raise ValueError("expected an absolute path, as in sqlite:////var/lib/results.db")
    return url


DatabaseUrl = Annotated[
    str,
    AfterValidator(_without_secrets),
    Field(
        description="SQLAlchemy URL; ${ENV_VAR} expands, and a password is written only so.",
        examples=["postgresql+psycopg://me:${PGPASSWORD}@host/database"],
    ),
]


def expanded(url: str) -> str:
    """The URL with `${ENV_VAR}` filled in; in user and password any character may be."""
    user, at, rest = url.rpartition("@")
    return VARIABLE.sub(lambda found: quote(expand(found.group()), safe=""), user) + at + expand(rest)


def engine(url: str) -> "Engine":
    """Without a pool: a publish opens a few connections in all. Raises `JobError` for a URL that cannot work."""
    import sqlalchemy as sa

    from overnight.tasks.write.merge.json_values import dump

    try:
        made = sa.create_engine(
            expanded(url),
            poolclass=sa.NullPool,
            hide_parameters=True,
            json_serializer=lambda value: dump(value).decode(),
        )
    except ImportError as error:
        raise missing(error.name or "of the database", url, "write") from None
    except (sa.exc.ArgumentError, ValueError):  # its message may show the password
        raise JobError(
            f"{url}: expected a URL of a database whose driver is installed where the job runs, found another.",
            "write",
        ) from None
    if made.dialect.name == "sqlite":
        _begin_at_once(made)
    return made


def _begin_at_once(made: "Engine") -> None:
    """Transactions of SQLite that hold what is defined too, and begin with the lock on the file."""
    import sqlalchemy as sa

    @sa.event.listens_for(made, "connect")
    def _connect(connection, _) -> None:  # type: ignore[no-untyped-def]
        connection.isolation_level = None  # sqlite3 would commit before what defines a table
        connection.execute(f"PRAGMA busy_timeout = {SECONDS_TO_WAIT * 1000}")

    @sa.event.listens_for(made, "begin")
    def _begin(connection) -> None:  # type: ignore[no-untyped-def]
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextlib.contextmanager
def told(place: str) -> Iterator[None]:
    """Raises `StorageFailed` for a database that cannot be reached, `ContractError` for rows that it refuses."""
    import sqlalchemy as sa

    try:
        yield
    except OvernightError:
        raise
    except sa.exc.DBAPIError as error:
        said = " ".join(str(error.orig).split())
        if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or error.connection_invalidated:
            raise StorageFailed(
                f"cannot publish to {place}: {said}. Nothing was published; run again to resume where the staged "
                "parts end.",
                "write",
            ) from None
        raise ContractError(f"{place} does not take the rows: {said}. Nothing was published.", "write") from None
