"""JSON Lines: one file, one unit, its rows counted while reading. Columns out: the objects' keys, `row_id` and `uri`.

Types are inferred once, from the first rows of the first file; a line that is no JSON object, or holds a value of
another type, is quarantined alone. A key that is missing is null; a key first met later is inferred where it stands.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Literal

import fsspec
import numpy as np
import orjson
import pyarrow as pa

from tasks.errors import RowError
from tasks.ingest.listing import file_units
from tasks.ingest.source import Source
from tasks.ingest.tables import bad_rows, end_of_unit, table_block, unreadable
from tasks.storage import File, open_filesystem

ROWS_AT_ONCE = 4096
SAMPLE_ROWS = 1000


class Jsonl(Source):
    """Every file below the directory that ends in .jsonl, .ndjson or .json, also gzipped; blank lines are no rows."""

    kind: Literal["jsonl"] = "jsonl"

    extensions: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def schema(self, units: pa.Table) -> pa.Schema | None:
        for uri in units["uri"].to_pylist()[:8]:
            try:
                parsed = [_parse(line) for line in islice(self._lines(uri), SAMPLE_ROWS)]
            except (OSError, EOFError):
                continue
            objects = [value for value in parsed if isinstance(value, dict)]
            if not objects:
                continue
            fields = []
            for name in dict.fromkeys(key for value in objects for key in value):
                try:
                    kind = pa.array([value.get(name) for value in objects]).type
                except pa.ArrowException:
                    kind = pa.array([value[name] for value in objects if name in value][:1]).type
                if not pa.types.is_null(kind):
                    fields.append((name, kind))
            return pa.schema(fields)
        return None

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit, schema or pa.schema([]))

    def _read_unit(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        count = 0
        lines = self._lines(unit["uri"])
        if unit["rows"] is not None:
            lines = islice(lines, unit["rows"])
        try:
            while chunk := list(islice(lines, ROWS_AT_ONCE)):
                yield from _blocks(unit, count, chunk, schema)
                count += len(chunk)
        except (OSError, EOFError) as error:
            if count == 0:
                yield from unreadable(unit, error)
                return
            yield bad_rows(unit, [count], [RowError(f"the file cannot be read from here on: {error}")])
            count += 1
        if unit["rows"] is None:
            yield end_of_unit(unit, count)

    def _lines(self, uri: str) -> Iterator[bytes]:
        filesystem, path = open_filesystem(uri, self.anonymous)
        compression = "gzip" if path.endswith(".gz") else None
        with fsspec.core.OpenFile(filesystem, path, "rb", compression=compression) as file:
            yield from (line for line in file if line.strip())


def _parse(line: bytes) -> dict[str, Any] | RowError:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return RowError(f"expected a JSON object, found {line[:200].decode(errors='replace')!r}: {error}")
    if not isinstance(value, dict):
        return RowError(f"expected a JSON object, found {type(value).__name__}: {line[:200].decode(errors='replace')}")
    return value


def _blocks(unit: dict, first: int, chunk: list[bytes], schema: pa.Schema) -> Iterator[pa.Table]:
    parsed = [_parse(line) for line in chunk]
    errors: dict[int, Exception] = {i: value for i, value in enumerate(parsed) if isinstance(value, RowError)}
    objects = {i: value for i, value in enumerate(parsed) if isinstance(value, dict)}
    names = dict.fromkeys([*schema.names, *(key for value in objects.values() for key in value)])
    columns = {}
    for name in names:
        kind = schema.field(name).type if name in schema.names else None
        try:
            columns[name] = pa.array([value.get(name) for value in objects.values()], kind)
        except (pa.ArrowException, OverflowError):
            errors |= _misfits(name, kind, objects)
    if errors:
        yield bad_rows(unit, [first + i for i in errors], list(errors.values()))
        good = [line for i, line in enumerate(chunk) if i not in errors]
        numbers = np.array([first + i for i in objects if i not in errors], np.int64)
        values = [value for i, value in objects.items() if i not in errors]
        columns = {
            name: pa.array([v.get(name) for v in values], schema.field(name).type if name in schema.names else None)
            for name in names
        }
        if good:
            yield table_block(unit, numbers, pa.table(columns))
        return
    yield table_block(unit, first + np.arange(len(chunk)), pa.table(columns))


def _misfits(name: str, kind: pa.DataType | None, objects: dict[int, dict[str, Any]]) -> dict[int, Exception]:
    """The rows whose value has not the column's type; without a known type, that of its first value."""
    errors: dict[int, Exception] = {}
    for i, value in objects.items():
        if value.get(name) is None:
            continue
        try:
            found = pa.array([value[name]], kind)
            kind = kind or found.type
        except (pa.ArrowException, OverflowError):
            errors[i] = RowError(f"column {name}: expected {kind}, found {str(value[name])[:200]!r}")
    return errors
