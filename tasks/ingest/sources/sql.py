"""Rows of a query to any database that SQLAlchemy supports. Columns out: the query's, `row_id`, `uri` (null).

`key` is a column of the query that identifies each row permanently; its value is the `row_id`. The keys are listed
once, and kept in the manifest, one range of keys per unit. A row that no longer exists when it is read is quarantined.
So is a changed row, if the query has a `version_column` that shows the change. A row that arrived after the listing
belongs to the next run.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field, PositiveInt, field_validator

from overnight.tasks.config.masking import masked
from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.config.partition_names import PLACEHOLDER, filled
from overnight.tasks.engine.passing_on import LARGEST_BLOCK_BYTES
from overnight.tasks.errors import InputError, RowError
from overnight.tasks.ingest.formats.column_types import known_types, typed_schema
from overnight.tasks.ingest.formats.sql_query import connection, rows
from overnight.tasks.ingest.formats.sql_types import column_of, inferred_type
from overnight.tasks.ingest.reading.table_blocks import quarantined_rows, repeated, require_known, table_block
from overnight.tasks.ingest.reading.unit_rows import file_units
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.versioned_file import SourceChanged, SourceVanished
from overnight.tasks.rows.arrow_types import types_by_name
from overnight.tasks.storage.database import DatabaseUrl
from overnight.tasks.storage.location import File

if TYPE_CHECKING:
    from sqlalchemy import Connection

BYTES_A_ROW = 1024  # an assumption, by which units are packed into blocks
KEYS_AT_ONCE = 10_000
SAMPLE_UNITS = 4

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Sql(Source):
    """The rows of a SQL query, each named by its key."""

    kind: Literal["sql"] = "sql"
    url: DatabaseUrl
    query: Annotated[str, Field(min_length=1, description="One SELECT; {partition} is the date, as a bound parameter.")]
    key: Annotated[Name, Field(description="The column that names a row forever: whole numbers or texts, each once.")]
    version_column: Annotated[
        Name | None, Field(description="A column whose value changes with its row, such as updated_at.")
    ] = None
    types: Annotated[
        dict[str, str],
        AfterValidator(known_types),
        Field(description="Arrow type names by column, for example {price: double}; default: inferred."),
    ] = {}
    rows_per_unit: Annotated[
        PositiveInt, Field(description="The rows that one query reads. At most 32 MiB of them are in memory together.")
    ] = 1000

    dated_by: ClassVar[tuple[str, ...]] = ("query",)

    @field_validator("query")
    @classmethod
    def _is_bound(cls, query: str) -> str:
        if match := re.search(r"""['"](\{\w+\})['"]""", query):
            raise ValueError(f"expected {match[1]} without quotes: it is bound as a parameter and not pasted")
        return query.strip().removesuffix(";")

    def place(self, partition: str) -> str:
        return f"the query of {masked(self.url)}"

    def is_local(self, partition: str) -> bool:
        return True  # a connection belongs to the thread that made it

    def files(self, partition: str) -> Iterator[File]:
        """Yield a `File` for each range of at most `rows_per_unit` keys. Its version is a JSON text with these keys."""
        columns = ", ".join([self.key, *([self.version_column] if self.version_column else [])])
        query = f"SELECT {columns} FROM ({self.query}) overnight ORDER BY {self.key}"
        with connection(self.url) as session:
            result = rows(session, query, self._bound(partition), KEYS_AT_ONCE)
            next(result)  # the names
            last: Any = None
            while unit_rows := list(islice(result, self.rows_per_unit)):
                keys, *versions = map(list, zip(*unit_rows, strict=True))
                self._check_keys([last, *keys])
                last = keys[-1]
                version: dict[str, Any] = {"partition": partition, "keys": keys}
                if versions:
                    version["versions"] = list(map(_digest, versions[0]))
                text = json.dumps(version, ensure_ascii=False)
                yield File(f"{keys[0]}..{last}", "", len(keys) * BYTES_A_ROW, text)

    def _bound(self, partition: str) -> dict[str, Any]:
        """Return the values of the query's placeholders."""
        return {name: filled(f"{{{name}}}", partition) for name in {"partition", *PLACEHOLDER.findall(self.query)}}

    def _check_keys(self, keys: list[Any]) -> None:
        """Raise `InputError` for a key of another type, or equal to the key before it. The first was checked before."""
        for before, key in pairwise(keys):
            if not isinstance(key, int | str):
                raise InputError(
                    f"source.key: expected whole numbers or texts in {self.key}, found {key!r:.80} "
                    f"({type(key).__name__}). Cast it in the query, and make sure that no key is null."
                )
            if key == before:
                raise InputError(f"source.key: expected another {self.key} in each row, found {key!r:.80} twice.")

    def units(self, files: list[File]) -> pa.Table:
        units = file_units(files, (len(json.loads(file.version)["keys"]) for file in files))
        return units.set_column(units.column_names.index("uri"), "uri", pa.nulls(len(units), pa.string()))

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        sample: list[Any] = []
        names: list[str] = []
        with connection(self.url) as session:
            for unit in units.slice(0, SAMPLE_UNITS).to_pylist():
                for columns, rows_by_key in self._fetched(session, unit):
                    names = columns or names
                    for row in rows_by_key.values():
                        if row and not isinstance(row, RowError):
                            # The beginning of a text is enough for its type.
                            sample.append([value[:1] if isinstance(value, str | bytes) else value for value in row])
        if doubles := repeated(names):
            raise InputError(f"source.query: expected each column once, found several named {doubles}.")
        require_known("types", self.types, names)
        samples: list[Sequence[Any]] = [*zip(*sample, strict=True)] or [()] * len(names)
        return typed_schema(dict(zip(names, map(inferred_type, samples), strict=True)), self.types)

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        with connection(self.url) as session:
            for unit in units.to_pylist():
                keys = json.loads(unit["version"])["keys"][: unit["rows"]]
                missing: dict[Any, list[int]] = {}
                for number, key in enumerate(keys):
                    # a damaged database may list a key again
                    missing.setdefault(key, []).append(number)
                for names, rows_by_key in self._fetched(session, unit):
                    if names:
                        self._check_columns(names, schema)
                    listed: dict[int, Any] = {}
                    for key, row in rows_by_key.items():
                        numbers = missing.pop(key, [])
                        listed.update(dict.fromkeys(numbers, row if len(numbers) == 1 else None))
                    yield from self._blocks(unit, names, listed, schema)
                absent: dict[int, Exception] = {}
                for key, numbers in missing.items():
                    reason = f"expected the row with {self.key} {key}, as listed, found none any more"
                    absent |= dict.fromkeys(numbers, self._lost(SourceVanished, reason))
                yield from quarantined_rows(unit, absent, keys)

    def _fetched(self, session: "Connection", unit: dict) -> Iterator[tuple[list[str], dict[Any, Any]]]:
        """Yield the result of `_fetch`. If a row takes too much memory, fetch the others one by one."""
        version, fetched_keys = json.loads(unit["version"]), set[Any]()
        try:
            for names, rows_by_key in self._fetch(session, unit):
                yield names, rows_by_key
                fetched_keys |= set(rows_by_key)
            return
        except MemoryError as error:
            session.rollback()
            lack = error
        keys = [key for key in dict.fromkeys(version["keys"]) if key not in fetched_keys]
        if len(version["keys"]) == 1:
            yield [], {keys[0]: RowError(f"{self.key} {keys[0]!r:.80}: {shortage(lack)}")}
            return
        for key in keys:
            yield from self._fetched(session, {**unit, "version": json.dumps({**version, "keys": [key]})})

    def _fetch(self, session: "Connection", unit: dict) -> Iterator[tuple[list[str], dict[Any, Any]]]:
        """Yield the names of the columns, and by key the current rows between the unit's first and last key."""
        version = json.loads(unit["version"])
        bounds = {"first": version["keys"][0], "last": version["keys"][-1]}
        values = {**self._bound(version["partition"]), **bounds}
        query = (
            f"SELECT * FROM ({self.query}) overnight WHERE {self.key} >= {{first}} AND {self.key} <= {{last}} "
            f"ORDER BY {self.key}"  # so that rows with one key come together
        )
        with closing(rows(session, query, values)) as result:
            names = list(map(str, next(result)))
            position = _place(self.key, names)
            piece: dict[Any, Any] = {}
            size = 0
            for key, same_key_rows in groupby(result, lambda row: row[position]):
                row, *others = same_key_rows
                if piece and size + _size(row) > LARGEST_BLOCK_BYTES:
                    yield names, piece
                    piece, size = {}, 0
                piece[key] = None if others or key in piece else row
                size += _size(row)
            yield names, piece

    def _check_columns(self, names: list[str], schema: pa.Schema | None) -> None:
        if schema and (dropped := sorted(set(schema.names) - set(names))):
            raise InputError(
                f"source.query: expected the columns {', '.join(schema.names)}, as listed, found no {dropped[0]} any "
                "more. Restore the column, or run with force for a new list."
            )

    def _blocks(
        self, unit: dict, names: list[str], listed: dict[int, Any], schema: pa.Schema | None
    ) -> Iterator[pa.Table]:
        """Yield the blocks of the rows in `listed`, which has them by their position among the unit's keys."""
        version = json.loads(unit["version"])
        keys = version["keys"]
        errors: dict[int, Exception] = {}
        good: dict[int, Any] = {}
        for number, row in sorted(listed.items()):
            if row is None:
                reason = f"expected one row with {self.key} {keys[number]}, as listed, found several"
                errors[number] = self._lost(SourceChanged, reason)
            elif isinstance(row, RowError):
                errors[number] = row
            elif self._is_changed(row, names, version, number):
                reason = f"expected the row with {self.key} {keys[number]} as listed, found another"
                errors[number] = self._lost(SourceChanged, f"{reason} {self.version_column}")
            else:
                good[number] = row
        numbers = np.array(list(good), np.int64)
        columns = {}
        kinds = types_by_name(schema or ())
        for name, values in zip(names, zip(*good.values(), strict=True), strict=False):
            kind = kinds.get(name) or inferred_type(values)
            columns[name], misfits = column_of(name, values, kind)
            errors = {int(numbers[row]): error for row, error in misfits.items()} | errors
        is_good = ~np.isin(numbers, list(errors))
        if is_good.any():
            block = table_block(unit, numbers[is_good], pa.table(columns).filter(pa.array(is_good)))
            ids = pa.array([str(keys[number]) for number in numbers[is_good].tolist()], pa.string())
            yield block.set_column(block.column_names.index("row_id"), "row_id", ids)
        yield from quarantined_rows(unit, errors, keys)

    def _is_changed(self, row: Sequence[Any], names: list[str], version: dict, number: int) -> bool:
        if not self.version_column:
            return False
        return bool(_digest(row[_place(self.version_column, names)]) != version["versions"][number])

    def lost(self, unit: dict, error: Exception) -> Iterator[pa.Table]:
        keys = json.loads(unit["version"])["keys"][: unit["rows"]]
        yield from quarantined_rows(unit, dict.fromkeys(range(len(keys)), error), keys)

    def _lost(self, kind: type[Exception], sentence: str) -> Exception:
        if self.on_changed == "quarantine":
            return kind(sentence)
        raise InputError(f"{sentence}. source.on_changed is fail: run with force for a new list.")


def _place(column: str, names: list[str]) -> int:
    """Return the position of the job's column in a query's result, whatever its case."""
    return list(map(str.lower, names)).index(column.lower())


def _size(row: Sequence[Any]) -> int:
    """Return about how many bytes the row has."""
    size = 0
    for value in row:
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, list | dict):
            size += len(repr(value))
        else:
            size += 8
    return size


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:8]
