"""JSON Lines: one file, one unit, its rows counted while reading. Columns out: the objects' keys, `row_id` and `uri`.

A key has the type that holds all of its values in the first rows of the first files. It is text if there is no such
type, or if it first appears later. Text has strings unchanged, and all other values as JSON. A missing key is null. A
line is quarantined alone if it is not a JSON object, or has a value that its column's type cannot represent unchanged.
If a file is one JSON document (an array, or objects over several lines), each of its objects is a row.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field

from overnight.tasks.config.settings import AdjustableFlag
from overnight.tasks.errors import RowError
from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.formats.column_types import known_types, typed_schema
from overnight.tasks.ingest.formats.json_text import parsed, values
from overnight.tasks.ingest.formats.json_types import column_as, column_of, inferred_type
from overnight.tasks.ingest.formats.text_encoding import Encoding
from overnight.tasks.ingest.formats.text_lines import UTF_8, pieces_of
from overnight.tasks.ingest.reading.file_errors import passing_over_damage
from overnight.tasks.ingest.reading.table_blocks import require_known
from overnight.tasks.ingest.reading.unit_rows import (
    Judged,
    chunks,
    judged_rows,
    size_of,
    values_of,
    with_columns,
    without_error,
)
from overnight.tasks.ingest.source import GIB, MaxRowBytes
from overnight.tasks.rows.arrow_types import types_by_name

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

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        objects: list[dict[str, Any]] = []
        files_read = 0
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            most = SAMPLE_ROWS - len(objects)
            pieces = chunks(islice(self._lines(unit), most), SAMPLE_ROWS, size_of)
            with passing_over_damage():
                lines = next(pieces, [])
                objects += [value for value in parsed(lines, self.allow_nan) if isinstance(value, dict)]
                files_read += next(pieces, None) is None and len(lines) < most
        names = dict.fromkeys(chain.from_iterable(objects))
        if objects and files_read == len(units):
            require_known("types", self.types, list(names), "key")
        kinds: dict[str, pa.DataType] = {}
        for name in [*names, *self.types]:
            kind = inferred_type(values_of(objects, name))
            if kind is not None or name in self.types:
                kinds[name] = kind
        return typed_schema(kinds, self.types)

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        for lines in chunks(islice(self._lines(unit), unit["rows"]), ROWS_AT_ONCE, size_of):
            rows, errors = judged_rows(parsed(lines, self.allow_nan), without_error)
            kinds = types_by_name(schema)
            columns = {}
            for name in dict.fromkeys([*schema.names, *chain.from_iterable(rows)]):
                convert = column_as if name in self.types else column_of
                columns[name], misfits = convert(name, values_of(rows, name), kinds.get(name))
                errors = misfits | errors
            yield Judged(with_columns(len(rows), columns), errors)

    def _lines(self, unit: dict) -> Iterator[bytes | RowError]:
        most = self.max_row_bytes
        return values(pieces_of(self.file(unit, unit["size"]), (b"\n",), most, self.encoding), unit["path"], most)
