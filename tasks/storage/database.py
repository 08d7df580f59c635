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
    scheme, _, address = url.partition("://")
    if not address and not VARIABLE.fullmatch(url):
        raise ValueError("expected a SQLAlchemy URL, for example postgresql+psycopg://me@host/database")
    if secret := _secret(address, scheme.startswith(IN_FILES)):
        raise ValueError(f"the URL contains {secret}; write ${{ENV_VAR}} in its place, and set it where the job runs")
    if scheme.startswith("sqlite") and not address.startswith(("//", "/${", "${")):
        raise ValueError("expected an absolute path, as in sqlite:////var/lib/results.db")
    return url


def _secret(address: str, is_in_file: bool) -> str:
    """Return what the URL after its scheme contains as plain text, such as `the password`; empty without a secret."""
    user, password = "", ""
    if match := USER.match(address):
        user, password, address = match[1], match[2] or "", address[match.end() :]
    if (password and not VARIABLE.fullmatch(password)) or re.search("[:/]", VARIABLE.sub("", unquote(user))):
        return "the password"
    host, *settings = re.split("[?&;#]", unquote_plus(unquote_plus(address)))
    if "@" in host and not is_in_file:
        return "a password, or a user name that is not percent-encoded, before its @"
    for setting in settings:
        name, _, value = setting.removeprefix("odbc_connect=").partition("=")
        name, value = name.strip(), value.strip()
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
    """Return the URL with its `${ENV_VAR}` expanded, and percent-encoded in the user name and the password."""
    user, at, address = url.rpartition("@")
    for name in VARIABLE.findall(user):
        hide_variable(name)
    return VARIABLE.sub(lambda variable: quote(expand(variable.group()), safe=""), user) + at + expand(address)


def engine(url: str, stage: str, **options: Any) -> "Engine":
    """Return SQLAlchemy's engine without a pool. Raise `JobError` for `stage` if the URL's driver is not installed."""
    import sqlalchemy as sa

    try:
        return sa.create_engine(expanded(url), poolclass=sa.NullPool, hide_parameters=True, **options)
    except ImportError as error:
        raise missing(error.name or "of the database", url, stage) from None
    except (sa.exc.ArgumentError, ValueError):  # its message may show the password
        raise JobError(
            f"{url}: expected a URL of a database whose driver is installed where the job runs, found another.", stage
        ) from None
