"""JSON Lines: one file, one unit, its rows counted while reading. Columns out: the objects' keys, `row_id` and `uri`.

Types are inferred once, from the first rows of the first files, and the setting `types` overrides them. A line is
quarantined alone if it is not a JSON object, or has a value that its column's type cannot represent unchanged. A
missing key is null. A key has the type that holds all of its first values. It is text if there is no such type, or if
it first appears later. Text has strings unchanged, and all other values as JSON. Blank lines are not rows. If
a file is one JSON document (an array, or objects over several lines), each of its objects is a row.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field

from overnight.tasks.config.settings import AdjustableFlag
from overnight.tasks.errors import InputError, RowError
from overnight.tasks.ingest.formats.csv_types import known_types
from overnight.tasks.ingest.formats.json_text import parsed, values
from overnight.tasks.ingest.formats.json_types import column_as, column_of, inferred_type
from overnight.tasks.ingest.formats.text_encoding import Encoding
from overnight.tasks.ingest.formats.text_lines import UTF_8, pieces_of
from overnight.tasks.ingest.listing.list_files import file_units
from overnight.tasks.ingest.reading.table_blocks import (
    BYTES_AT_ONCE,
    chunk,
    finish_text_file,
    quarantined_rows,
    size_of,
    table_block,
)
from overnight.tasks.ingest.source import GIB, FolderSource, MaxRowBytes
from overnight.tasks.storage.location import File

ROWS_AT_ONCE = 4096
SAMPLE_ROWS, SAMPLE_FILES = 1000, 8


class Jsonl(FolderSource):
    """Every file below the directory that ends in .jsonl, .ndjson or .json, also gzipped."""

    kind: Literal["jsonl"] = "jsonl"
    types: Annotated[
        dict[str, str],
        AfterValidator(known_types),
        Field(description="Arrow type names by key, for example {id: string}."),
    ] = {}
    encoding: Encoding = UTF_8
    allow_nan: Annotated[
        AdjustableFlag,
        Field(description="Read NaN, Infinity and -Infinity, which Python writes and JSON lacks, as numbers."),
    ] = False
    max_row_bytes: MaxRowBytes = GIB // 4

    holds_texts: ClassVar[bool] = True
    rows_show_columns: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        objects: list[dict[str, Any]] = []
        is_all = len(units) <= SAMPLE_FILES
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            most = SAMPLE_ROWS - len(objects)
            lines, damage = chunk(islice(self._lines(unit), most), SAMPLE_ROWS, size_of)
            is_all &= damage is None and len(lines) < most and sum(map(size_of, lines)) < BYTES_AT_ONCE
            objects += [value for value in parsed(lines, self.allow_nan) if isinstance(value, dict)]
        names = dict.fromkeys(key for value in objects for key in value)
        unknown = sorted(set(self.types) - set(names))
        if unknown and objects and is_all:
            raise InputError(f"source.types: no key {unknown[0]}; the keys are {', '.join(names)}.")
        kinds = {name: inferred_type([value.get(name) for value in objects]) for name in names}
        declared = {name: pa.type_for_alias(kind) for name, kind in self.types.items()}
        return pa.schema([(name, kind) for name, kind in (kinds | declared).items() if kind is not None])

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit, schema or pa.schema([]))

    def _read_unit(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        count, damage = 0, None
        lines = islice(self._lines(unit), unit["rows"])
        while damage is None:
            some, damage = chunk(lines, ROWS_AT_ONCE, size_of)
            if not some:
                break
            yield from self._blocks(unit, count, some, schema)
            count += len(some)
        yield from finish_text_file(unit, count, damage)

    def _lines(self, unit: dict) -> Iterator[bytes | RowError]:
        most = self.max_row_bytes
        return values(pieces_of(self.file(unit, unit["size"]), (b"\n",), most, self.encoding), unit["path"], most)

    def _blocks(self, unit: dict, first: int, some: list[bytes | RowError], schema: pa.Schema) -> Iterator[pa.Table]:
        found = parsed(some, self.allow_nan)
        errors: dict[int, Exception] = {i: value for i, value in enumerate(found) if isinstance(value, RowError)}
        objects = {i: value for i, value in enumerate(found) if isinstance(value, dict)}
        columns = {}
        for name in dict.fromkeys([*schema.names, *(key for value in objects.values() for key in value)]):
            kind = schema.field(name).type if name in schema.names else None
            cells = {i: value.get(name) for i, value in objects.items()}
            columns[name], misfits = (column_as if name in self.types else column_of)(cells, kind)
            errors = {i: RowError(f"column {name}: {reason}") for i, reason in misfits.items()} | errors
        if errors:
            yield quarantined_rows(unit, [first + i for i in errors], list(errors.values()))
        good = [place for place, i in enumerate(objects) if i not in errors]
        if good:
            numbers = first + np.array(list(objects), np.int64)
            data = pa.table(columns)
            yield table_block(unit, numbers[good], data.take(good) if errors and columns else data)
