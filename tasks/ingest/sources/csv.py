"""CSV files: one file, one unit, its rows counted while reading. Columns out: the file's, `row_id` and `uri`.

Types are inferred once, from the beginning of the first files, so that the blocks of all files agree. A missing column
is null, and a column that first appears later is text. A row is quarantined alone for a wrong number of fields, a value
of the wrong type, or bytes that are not UTF-8. All rows of a file are quarantined if it shares no column with the other
files, or has a column twice. Blank lines are not rows.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.formats.column_types import known_types, typed_schema
from overnight.tasks.ingest.formats.csv_header import alike, doubts, other_delimiter, refusal
from overnight.tasks.ingest.formats.csv_rows import CsvFile
from overnight.tasks.ingest.formats.csv_types import changes, convert, inferred_type
from overnight.tasks.ingest.formats.text_encoding import Encoding
from overnight.tasks.ingest.formats.text_lines import UTF_8
from overnight.tasks.ingest.reading.file_errors import passing_over_damage
from overnight.tasks.ingest.reading.table_blocks import quarantined_rows, require_known, table_block
from overnight.tasks.ingest.reading.unit_rows import finish_file
from overnight.tasks.rows.blocks import data_name
from overnight.tasks.state.manifest import with_warnings

SAMPLE_FILES = 8


class Csv(FolderSource):
    """Every file below the directory that ends in .csv or .tsv, also gzipped."""

    kind: Literal["csv"] = "csv"
    delimiter: Annotated[
        str,
        Field(
            min_length=1, max_length=1, description="The character between fields. Files that end in .tsv take tabs."
        ),
    ] = ","
    column_names: Annotated[
        list[str] | None, Field(description="The names of the columns, if the files have no header line.")
    ] = None
    encoding: Encoding = UTF_8
    null_values: Annotated[
        list[str] | None,
        Field(
            description="The texts that are null in every column unless they have quotes, for example ['', NA]; "
            "default: in columns that are not text, an empty field and the usual spellings, such as NA, NULL and nan."
        ),
    ] = None
    types: Annotated[
        dict[str, str],
        AfterValidator(known_types),
        Field(description="Arrow type names by column, for example {id: int64}."),
    ] = {}

    holds_texts: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

    def column_names_made(self) -> list[str] | None:
        if self.column_names is None:
            return None
        return list(map(data_name, self.column_names))

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        kinds: dict[str, pa.DataType] = {}
        warnings: list[str] = []
        spellings = self.null_values is None
        samples = self._samples(units)
        for path, text in alike(list(islice(samples, SAMPLE_FILES))):
            if not kinds and not self.column_names:
                warnings += doubts(path, text)
            for name in text.column_names:
                if name not in kinds:
                    kinds[name] = inferred_type(text[name], spellings)
                elif changes(text[name], kinds[name], spellings):
                    kinds[name] = pa.string()
        if set(self.types) - set(kinds) and kinds and next(samples, None) is None:
            require_known("types", self.types, list(kinds))
        return with_warnings(typed_schema(kinds, self.types), warnings)

    def _samples(self, units: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the path and the first rows, as text, of each file that can be read."""
        names: list[str] = []
        for unit in units.to_pylist():
            text = None
            with passing_over_damage():
                text = self._csv(unit).first_rows(names)
            if text is not None:
                names = text.column_names
                yield unit["path"], text

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit, schema or pa.schema([]))

    def _read_unit(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        file, count, limit, error = self._csv(unit), 0, unit["rows"], None
        for rows in file.rows(schema.names):
            count = max(count, rows.stop)
            names = rows.text.column_names
            errors = dict(rows.errors)
            misfits: dict[int, Exception]
            if error := refusal(names, schema.names):
                data, misfits = rows.text, dict.fromkeys(range(len(rows.text)), error)
                errors = dict.fromkeys(errors, error)
            else:
                data, misfits = convert(rows.text, schema, file.is_marked, self.types, self.null_values is None)
                if hint := other_delimiter(names):
                    errors = {number: RowError(f"{reason}; {hint}") for number, reason in errors.items()}
            for position, misfit in misfits.items():
                errors[int(rows.numbers[position])] = misfit
            is_good = np.ones(len(rows.numbers), bool)
            is_good[list(misfits)] = False
            if limit is not None:
                is_good &= rows.numbers < limit
                errors = {number: reason for number, reason in errors.items() if number < limit}
            yield from quarantined_rows(unit, errors)
            if is_good.any():
                yield table_block(unit, rows.numbers[is_good], data.filter(pa.array(is_good)))
            if limit is not None and count >= limit:
                return
        yield from finish_file(unit, count, file.damage or (None if count else error))

    def _csv(self, unit: dict) -> CsvFile:
        delimiter = self.delimiter
        if delimiter == "," and unit["uri"].lower().endswith((".tsv", ".tsv.gz")):
            delimiter = "\t"
        return CsvFile(self.file(unit, unit["size"]), delimiter, self.column_names, self.encoding, self.null_values)
