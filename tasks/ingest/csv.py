"""CSV files: one file, one unit, its rows counted while reading. Columns out: the file's, `row_id` and `uri`.

Types are inferred once, from the beginning of the first file, and hold for every file, so that no file's blocks
differ from another's; `types` overrides them. A row with the wrong number of fields or a value of the wrong type is
quarantined alone.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from pydantic import Field, field_validator

from tasks.errors import InputError, RowError
from tasks.ingest.listing import file_units
from tasks.ingest.source import Source
from tasks.ingest.tables import bad_rows, end_of_unit, table_block, unreadable
from tasks.storage import File, open_filesystem

BLOCK_BYTES = 4 * 2**20
_CONVERT = pcsv.ConvertOptions()


class Csv(Source):
    """Every file below the directory that ends in .csv or .tsv, also gzipped."""

    kind: Literal["csv"] = "csv"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    column_names: Annotated[list[str] | None, Field(description="For files without a header line.")] = None
    types: Annotated[dict[str, str], Field(description="Arrow type names by column, for example {id: int64}.")] = {}

    extensions: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

    @field_validator("types")
    @classmethod
    def _known_types(cls, types: dict[str, str]) -> dict[str, str]:
        for column, name in types.items():
            try:
                pa.type_for_alias(name)
            except ValueError:
                raise ValueError(f"{column}: expected an Arrow type such as int64 or string, found {name}") from None
        return types

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def schema(self, units: pa.Table) -> pa.Schema | None:
        for uri in units["uri"].to_pylist()[:8]:
            try:
                with self._open(uri) as file, self._reader(file, uri, [], None) as reader:
                    found = reader.schema
            except (pa.ArrowException, OSError):
                continue
            unknown = sorted(set(self.types) - set(found.names))
            if unknown:
                raise InputError(f"source.types: no column {unknown[0]}; the columns are {', '.join(found.names)}.")
            return pa.schema(
                [
                    (f.name, self.types.get(f.name) or (pa.string() if pa.types.is_null(f.type) else f.type))
                    for f in found
                ]
            )
        return None

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit, schema)

    def _read_unit(self, unit: dict, schema: pa.Schema | None) -> Iterator[pa.Table]:
        invalid: list[Any] = []
        count, limit = 0, unit["rows"]
        try:
            with self._open(unit["uri"]) as file, self._reader(file, unit["uri"], invalid, schema) as reader:
                if schema is not None and set(reader.schema.names) != set(schema.names):
                    found, expected = ", ".join(reader.schema.names), ", ".join(schema.names)
                    raise RowError(f"expected the columns {expected}, as in the first file; found {found}")
                for batch in reader:
                    # Rows of the wrong length are reported apart, with their numbers; the good ones fill the gaps.
                    places = np.arange(count, count + len(batch) + len(invalid))
                    numbers = np.setdiff1d(places, [self._number(row) for row in invalid])[: len(batch)]
                    count = int(numbers[-1]) + 1 if len(numbers) else count
                    yield from self._blocks(unit, numbers, pa.Table.from_batches([batch]), schema, limit)
                    if limit is not None and count >= limit:
                        break
        except (pa.ArrowException, OSError, EOFError, RowError) as error:
            if count == 0 and not invalid:
                yield from unreadable(unit, error)
                return
            count = max([count, *(self._number(row) + 1 for row in invalid)])
            yield bad_rows(unit, [count], [RowError(f"the file cannot be read from here on: {error}")])
            count += 1
        yield from self._quarantine(unit, invalid, limit)
        if limit is None:
            yield end_of_unit(unit, max([count, *(self._number(row) + 1 for row in invalid)]))

    def _quarantine(self, unit: dict, invalid: list[Any], limit: int | None) -> Iterator[pa.Table]:
        kept = [row for row in invalid if limit is None or self._number(row) < limit]
        if kept:
            errors: list[Exception] = [
                RowError(f"expected {row.expected_columns} fields, found {row.actual_columns}: {row.text[:200]}")
                for row in kept
            ]
            yield bad_rows(unit, [self._number(row) for row in kept], errors)

    def _number(self, row: Any) -> int:
        """The 0-based row of an invalid row; the reader counts from 1, the header line included."""
        return int(row.number) - (1 if self.column_names else 2)

    def _blocks(
        self, unit: dict, numbers: np.ndarray, data: pa.Table, schema: pa.Schema | None, limit: int | None
    ) -> Iterator[pa.Table]:
        if limit is not None:
            keep = numbers < limit
            numbers, data = numbers[keep], data.filter(pa.array(keep))
        if schema is not None:
            data, errors = _convert(data.select(schema.names), schema)
            if errors:
                yield bad_rows(unit, [int(numbers[i]) for i in errors], list(errors.values()))
                good = np.setdiff1d(np.arange(len(numbers)), list(errors))
                numbers, data = numbers[good], data.take(good)
        yield table_block(unit, numbers, data)

    def _open(self, uri: str) -> Any:
        filesystem, path = open_filesystem(uri, self.anonymous)
        return fsspec.core.OpenFile(filesystem, path, "rb", compression="gzip" if path.endswith(".gz") else None)

    def _reader(self, file: Any, uri: str, invalid: list[Any], schema: pa.Schema | None) -> pcsv.CSVStreamingReader:
        """Batches of text columns if there is a schema to convert them to, else of inferred types."""

        def remember(row: pcsv.InvalidRow) -> str:
            invalid.append(row)
            return "skip"

        delimiter = "\t" if self.delimiter == "," and uri.endswith((".tsv", ".tsv.gz")) else self.delimiter
        return pcsv.open_csv(
            file,
            pcsv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=self.column_names),
            pcsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=remember),
            pcsv.ConvertOptions(column_types={name: pa.string() for name in schema.names} if schema else None),
        )


def _convert(data: pa.Table, schema: pa.Schema) -> tuple[pa.Table, dict[int, Exception]]:
    """Text columns as `schema` says; the rows that have no such value, each with its error."""
    errors: dict[int, Exception] = {}
    columns = []
    for field in schema:
        column, failed = _convert_column(data[field.name].combine_chunks(), field)
        columns.append(column)
        errors = failed | errors
    return pa.table(columns, schema=pa.schema([(f.name, f.type) for f in schema])), errors


def _convert_column(text: pa.Array, field: pa.Field) -> tuple[pa.Array, dict[int, Exception]]:
    if pa.types.is_string(field.type):
        return text, {}
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.is_in(text, pa.array(_CONVERT.null_values)), pa.scalar(None, pa.string()), text)
    try:
        return _cast(text, field.type), {}
    except pa.ArrowInvalid:
        errors: dict[int, Exception] = {}
        values = text.to_pylist()
        for i, value in enumerate(values):
            try:
                _cast(pa.array([value], pa.string()), field.type)
            except pa.ArrowInvalid:
                errors[i] = RowError(f"column {field.name}: expected {field.type}, found {value!r}")
                values[i] = None
        return _cast(pa.array(values, pa.string()), field.type), errors


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_boolean(kind):
        return pc.cast(text, kind)
    true, false = pa.array(_CONVERT.true_values), pa.array(_CONVERT.false_values)
    known = pc.fill_null(pc.or_(pc.is_in(text, true), pc.is_in(text, false)), False)
    if not pc.all(pc.or_(known, pc.is_null(text))).as_py():
        raise pa.ArrowInvalid("not a boolean")
    return pc.if_else(pc.is_null(text), pa.scalar(None, pa.bool_()), pc.is_in(text, true))
