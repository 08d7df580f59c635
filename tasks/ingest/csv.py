"""CSV files: one file, one unit, its rows counted while reading. Columns out: the file's, `row_id` and `uri`.

Types are inferred once, from the beginning of the first file, and hold for every file, so that no file's blocks
differ from another's; `types` overrides them. A row with the wrong number of fields, a value of the wrong type or
bytes that are no UTF-8 is quarantined alone. Blank lines are no rows.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field

from tasks.errors import InputError
from tasks.ingest.csv_rows import CsvFile
from tasks.ingest.csv_types import convert, known_types
from tasks.ingest.listing import file_units
from tasks.ingest.source import FileSource
from tasks.ingest.tables import ROWS_AT_ONCE, bad_rows, end_of_text, is_damage, table_block
from tasks.storage import File


class Csv(FileSource):
    """Every file below the directory that ends in .csv or .tsv, also gzipped."""

    kind: Literal["csv"] = "csv"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    column_names: Annotated[list[str] | None, Field(description="For files without a header line.")] = None
    types: Annotated[
        dict[str, str],
        AfterValidator(known_types),
        Field(description="Arrow type names by column, for example {id: int64}."),
    ] = {}

    extensions: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        for unit in units.slice(0, 8).to_pylist():
            try:
                return self._schema(unit)
            except Exception as error:
                if not is_damage(error):
                    raise
        return None

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            try:
                known = schema or self._schema(unit)
            except Exception as error:
                if not is_damage(error):
                    raise
                yield from end_of_text(unit, 0, error)
                continue
            yield from self._read_unit(unit, known)

    def _schema(self, unit: dict) -> pa.Schema:
        found = self._csv(unit).inferred_schema()
        if double := sorted({name for name in found.names if found.names.count(name) > 1}):
            raise InputError(f"{unit['uri']}: expected each column once, found several named {', '.join(double)}.")
        if unknown := sorted(set(self.types) - set(found.names)):
            raise InputError(f"source.types: no column {unknown[0]}; the columns are {', '.join(found.names)}.")
        inferred = {f.name: pa.string() if f.type in (pa.null(), pa.binary()) else f.type for f in found}
        return pa.schema([(name, self.types.get(name) or kind) for name, kind in inferred.items()])

    def _read_unit(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        file, count, limit = self._csv(unit), 0, unit["rows"]
        for numbers, text, bad in file.rows(schema.names):
            count = max([count, *(numbers[-1:] + 1).tolist(), *(number + 1 for number in bad)])
            data, errors = convert(text, schema, file.is_marked)
            refused = bad | {int(numbers[i]): error for i, error in errors.items()}
            yield from _quarantined(unit, {n: e for n, e in refused.items() if limit is None or n < limit})
            good = np.ones(len(numbers), bool) if limit is None else numbers < limit
            good[list(errors)] = False
            if good.any():
                yield table_block(unit, numbers[good], data.filter(pa.array(good)))
            if limit is not None and count >= limit:
                return
        yield from end_of_text(unit, count, file.damage)

    def _csv(self, unit: dict) -> CsvFile:
        is_tabbed = self.delimiter == "," and unit["uri"].lower().endswith((".tsv", ".tsv.gz"))
        delimiter = "\t" if is_tabbed else self.delimiter
        return CsvFile(self.file(unit, unit["size"]), delimiter, self.column_names)


def _quarantined(unit: dict, errors: dict[int, Exception]) -> Iterator[pa.Table]:
    numbers = sorted(errors)
    for start in range(0, len(numbers), ROWS_AT_ONCE):
        some = numbers[start : start + ROWS_AT_ONCE]
        yield bad_rows(unit, some, [errors[number] for number in some])
