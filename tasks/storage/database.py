"""Databases by URL, for the source and the sinks. The URL is kept as the job file writes it, and expanded on use.

A password is written only as `${ENV_VAR}`, so that no receipt, log or task contains it. The password may contain any
character.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from pydantic import AfterValidator, Field

from overnight.tasks.config.extras import missing
from overnight.tasks.config.masking import hide_variable
from overnight.tasks.errors import JobError
from overnight.tasks.storage.location import VARIABLE, expand

if TYPE_CHECKING:
    from sqlalchemy import Engine

SECRETS = re.compile(r"[?&]([^=&]*(?:pass|secret|token|key)[^=&]*)=([^&]*)", re.IGNORECASE)


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if not rest and not VARIABLE.fullmatch(url):
        raise ValueError("expected a SQLAlchemy URL, for example postgresql+psycopg://me@host/database")
    user, at, _ = rest.rpartition("@")
    password = user.partition(":")[2] if at else ""
    if password and not VARIABLE.fullmatch(password):
        raise ValueError("the URL contains the password; write ${ENV_VAR} in its place, and set it where the job runs")
    for name, value in SECRETS.findall(url):
        if value and not VARIABLE.fullmatch(value) and "/" not in value:  # a path names a file
            raise ValueError(f"the URL contains {name}; write ${{ENV_VAR}} in its place, and set it where the job runs")
    if scheme.startswith("sqlite") and not rest.startswith(("//", "/${", "${")):
        raise ValueError("expected an absolute path, as in sqlite:////var/lib/results.db")
    return url


DatabaseUrl = Annotated[
    str,
    AfterValidator(_without_secrets),
    Field(
        description="The SQLAlchemy URL; ${ENV_VAR} expands. A password is allowed only as ${ENV_VAR}.",
        examples=["postgresql+psycopg://me:${PGPASSWORD}@host/database"],
    ),
]


def expanded(url: str) -> str:
    """Return the URL with the values of its `${ENV_VAR}`. Raise `JobError` for a variable that is not set.

    Values in the user name and the password are percent-encoded, so they may contain any character.
    """
    user, at, rest = url.rpartition("@")
    for name in VARIABLE.findall(user):
        hide_variable(name)
    return VARIABLE.sub(lambda found: quote(expand(found.group()), safe=""), user) + at + expand(rest)


def engine(url: str, stage: str, **options: Any) -> "Engine":
    """Return SQLAlchemy's engine without a pool, for a few connections in all. Its errors leave out bound values.

    Args:
        url: The URL as the job file writes it.
        stage: The stage that an error names.
        options: Further options of SQLAlchemy's `create_engine`.

    Raises:
        JobError: The kind of the URL is unknown, or its driver is not installed.
    """
    import sqlalchemy as sa

    try:
        return sa.create_engine(expanded(url), poolclass=sa.NullPool, hide_parameters=True, **options)
    except ImportError as error:
        raise missing(error.name or "of the database", url, stage) from None
    except (sa.exc.ArgumentError, ValueError):  # its message may show the password
        raise JobError(
            f"{url}: expected a URL of a database whose driver is installed where the job runs, found another.", stage
        ) from None
