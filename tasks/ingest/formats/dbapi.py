"""A query as a database's Python driver takes it (DB-API 2, PEP 249): its values bound, never pasted; its errors told.

It knows nothing of units, rows or what they mean.
"""

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from overnight.tasks.config.user_code import import_target
from overnight.tasks.errors import InputError, OvernightError, StorageFailed
from overnight.tasks.storage.location import expand

ParameterStyle = Literal["qmark", "numeric", "named", "format", "pyformat"]
ROWS_AT_ONCE = 10_000
_PASSING = {"OperationalError", "InterfaceError"}  # PEP 249's: errors of the database's operation, not of the query
_MARKS: dict[str, Callable[[str, int], str]] = {
    "qmark": lambda name, number: "?",
    "numeric": lambda name, number: f":{number}",
    "named": lambda name, number: f":{name}",
    "format": lambda name, number: "%s",
    "pyformat": lambda name, number: f"%({name})s",
}


@dataclass(frozen=True)
class Database:
    """How to connect: a driver's `connect` by name, and what it is called with, as the job file says it."""

    connect: str
    kwargs: tuple[tuple[str, Any], ...]
    style: ParameterStyle | None

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """Raises `StorageFailed` where the database does not answer, `InputError` where it refuses the query."""
        connect = import_target(self.connect, "ingest")
        kwargs = {key: expand(value) if isinstance(value, str) else value for key, value in self.kwargs}
        try:
            opened = connect(**kwargs)
        except Exception as error:
            if _is_passing(error):
                raise StorageFailed(f"the database of {self.connect} did not answer: {error}", "ingest") from error
            told = str(error) if isinstance(error, TypeError) else "its message may hold what variables stand for"
            raise InputError(
                f"source.kwargs: {self.connect} does not take them: {type(error).__name__}, {told}."
            ) from None
        with contextlib.closing(opened), self._told():
            yield opened

    def rows(self, connection: Any, query: str, values: dict[str, Any]) -> Iterator[Sequence[Any]]:
        """The rows of `query`, in which `{name}` stands for a value of `values`; some thousand held at a time.

        The first item has the names of the columns.
        """
        statement, parameters = bound(query, values, self._style())
        cursor = _streaming_cursor(connection)
        try:
            cursor.execute(statement, parameters)
            some = cursor.fetchmany(ROWS_AT_ONCE)
            yield [column[0] for column in cursor.description]
            while some:
                yield from some
                some = cursor.fetchmany(ROWS_AT_ONCE)
        finally:
            with contextlib.suppress(Exception):  # the connection may be closed already, or lost
                cursor.close()

    def _style(self) -> str:
        module = importlib.import_module(self.connect.partition(":")[0])
        found = self.style or getattr(module, "paramstyle", None)
        if found not in _MARKS:
            raise InputError(
                f"source.paramstyle: {self.connect.partition(':')[0]} does not say how a query marks a parameter. "
                f"Set it to what the driver of the database takes: one of {', '.join(_MARKS)}."
            )
        return str(found)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OvernightError:
            raise
        except Exception as error:
            names = {base.__name__ for base in type(error).__mro__}
            if "Error" not in names:  # PEP 249's base class
                raise
            if _is_passing(error):
                raise StorageFailed(
                    f"the database of {self.connect} did not answer: {type(error).__name__}: {error}", "ingest"
                ) from error
            raise InputError(f"source.query: {type(error).__name__}: {error}") from error


def _is_passing(error: Exception) -> bool:
    """Whether the database is to blame, and another attempt may find it well."""
    names = {base.__name__ for base in type(error).__mro__}
    return bool(names & _PASSING) and (type(error).__module__ != "sqlite3" or "locked" in str(error))


def bound(query: str, values: dict[str, Any], style: str) -> tuple[str, Any]:
    """The query with a driver's marks in the place of each `{name}` of `values`, and what to execute it with."""
    names: list[str] = []

    def mark(match: re.Match[str]) -> str:
        names.append(match.group(1))
        return _MARKS[style](match.group(1), len(names))

    if style in ("format", "pyformat"):
        query = query.replace("%", "%%")
    statement = re.sub("{(" + "|".join(map(re.escape, values)) + ")}", mark, query) if values else query
    if style in ("named", "pyformat"):
        return statement, {name: values[name] for name in names}
    return statement, tuple(values[name] for name in names)


def _streaming_cursor(connection: Any) -> Any:
    """One that leaves the rows with the server until they are fetched, where the driver has one (psycopg)."""
    try:
        return connection.cursor(name="overnight")
    except TypeError:
        return connection.cursor()
