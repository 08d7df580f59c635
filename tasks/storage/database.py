"""Databases by URL, for the source and the sinks. The URL is kept as the job file writes it, and expanded on use.

A password is written only as `${ENV_VAR}`, so that no receipt, log or task contains it. The password may contain any
character.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, unquote, unquote_plus

from pydantic import AfterValidator, Field

from overnight.tasks.config.extras import missing
from overnight.tasks.config.masking import hide_variable, masked_forms
from overnight.tasks.errors import JobError
from overnight.tasks.storage.location import VARIABLE, expand

if TYPE_CHECKING:
    from sqlalchemy import Engine

USER = re.compile(r"([^:/?#]*)(?::([^@]*))?@")  # as SQLAlchemy reads it
SECRET = re.compile(r"pass|pwd|secret|token|credential|signature|\bsig\b|key", re.IGNORECASE)
FILE = re.compile(r"file|path|cert|key", re.IGNORECASE)  # such a setting may have the path of a file as its value
PATH = re.compile(r"[^=;]*/[^=;/]*\.\w{2,8}|[~.]?/[\w/.~-]+")
IN_FILES = ("sqlite", "duckdb")  # the URL has a path in the place of a host


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if not rest and not VARIABLE.fullmatch(url):
        raise ValueError("expected a SQLAlchemy URL, for example postgresql+psycopg://me@host/database")
    if found := _secret(rest, scheme.startswith(IN_FILES)):
        raise ValueError(f"the URL contains {found}; write ${{ENV_VAR}} in its place, and set it where the job runs")
    if scheme.startswith("sqlite") and not rest.startswith(("//", "/${", "${")):
        raise ValueError("expected an absolute path, as in sqlite:////var/lib/results.db")
    return url


def _secret(rest: str, is_in_file: bool) -> str:
    """Return what a URL contains as plain text, such as `the password`; an empty string if it has no secret.

    `rest` follows the scheme. Drivers have settings in the query, after a semicolon, or in one text: `odbc_connect`.
    """
    user, password = "", ""
    if found := USER.match(rest):
        user, password, rest = found[1], found[2] or "", rest[found.end() :]
    if (password and not VARIABLE.fullmatch(password)) or re.search("[:/]", VARIABLE.sub("", unquote(user))):
        return "the password"
    place, *settings = re.split("[?&;#]", unquote_plus(unquote_plus(rest)))
    if "@" in place and not is_in_file:
        return "a password, or a user name that is not percent-encoded, before its @"
    for setting in settings:
        parts = setting.removeprefix("odbc_connect=").partition("=")
        name, value = parts[0].strip(), parts[2].strip()
        is_variable = VARIABLE.fullmatch(value) or VARIABLE.fullmatch(value[1:-1])
        if value and not is_variable and _is_secret(name, value):
            return name
    return ""


def _is_secret(name: str, value: str) -> bool:
    if FILE.search(name) and PATH.fullmatch(value):
        return False
    return bool(SECRET.search(name)) or masked_forms(value) != value


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
