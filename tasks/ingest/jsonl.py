"""JSON Lines: one file, one unit, its rows counted while reading. Columns out: the objects' keys, `row_id` and `uri`.

Types are inferred once, from the first rows of the first files; a line that is no JSON object, or holds a value that
its column's type cannot hold unchanged, is quarantined alone. A key that is missing is null; what is first met later is
text: strings as they are, all else as JSON. Blank lines are no rows.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Literal

import numpy as np
import orjson
import pyarrow as pa

from tasks import rows
from tasks.errors import RowError
from tasks.ingest.chunks import chunk
from tasks.ingest.json_types import column_of, inferred_type
from tasks.ingest.listing import file_units
from tasks.ingest.source import FileSource
from tasks.ingest.tables import bad_rows, end_of_text, table_block
from tasks.ingest.text_file import whole_lines
from tasks.storage import File

ROWS_AT_ONCE = 4096
SAMPLE_ROWS, SAMPLE_FILES = 1000, 8


class Jsonl(FileSource):
    """Every file below the directory that ends in .jsonl, .ndjson or .json, also gzipped."""

    kind: Literal["jsonl"] = "jsonl"

    extensions: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        objects: list[dict[str, Any]] = []
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            lines, _ = chunk(islice(self._lines(unit), SAMPLE_ROWS - len(objects)), SAMPLE_ROWS, len)
            objects += [value for line in lines if isinstance(value := _parse(line), dict)]
        names = dict.fromkeys(key for value in objects for key in value)
        kinds = {name: inferred_type([value.get(name) for value in objects]) for name in names}
        return pa.schema([(name, kind) for name, kind in kinds.items() if kind is not None])

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit, schema or pa.schema([]))

    def _read_unit(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        count, damage = 0, None
        lines = islice(self._lines(unit), unit["rows"])
        while damage is None:
            some, damage = chunk(lines, ROWS_AT_ONCE, len)
            if not some:
                break
            yield from _blocks(unit, count, some, schema)
            count += len(some)
        yield from end_of_text(unit, count, damage)

    def _lines(self, unit: dict) -> Iterator[bytes]:
        for piece in whole_lines(self.file(unit, unit["size"])):
            yield from (line for line in piece.split(b"\n") if line.strip())


def _parse(line: bytes) -> dict[str, Any] | RowError:
    shown = line[:200].decode(errors="replace")
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if not _is_utf8(line):
            return RowError(f"expected text in UTF-8, found {shown!r}")
        return RowError(f"expected a line that is a JSON object, found {shown!r}: {error}")
    if not isinstance(value, dict):
        return RowError(f"expected a line that is a JSON object, found {shown}")
    if reserved := sorted(value.keys() & set(rows.HIDDEN.names)):
        return RowError(f"the key {reserved[0]} is reserved; rename it in the source")
    return value


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _blocks(unit: dict, first: int, some: list[bytes], schema: pa.Schema) -> Iterator[pa.Table]:
    parsed = [_parse(line) for line in some]
    errors: dict[int, Exception] = {i: value for i, value in enumerate(parsed) if isinstance(value, RowError)}
    objects = {i: value for i, value in enumerate(parsed) if isinstance(value, dict)}
    columns = {}
    for name in dict.fromkeys([*schema.names, *(key for value in objects.values() for key in value)]):
        kind = schema.field(name).type if name in schema.names else None
        columns[name], misfits = column_of({i: value.get(name) for i, value in objects.items()}, kind)
        errors = {i: RowError(f"column {name}: {reason}") for i, reason in misfits.items()} | errors
    if errors:
        yield bad_rows(unit, [first + i for i in errors], list(errors.values()))
    good = [place for place, i in enumerate(objects) if i not in errors]
    if good:
        numbers = first + np.array(list(objects), np.int64)
        data = pa.table(columns)
        yield table_block(unit, numbers[good], data.take(good) if errors and columns else data)
