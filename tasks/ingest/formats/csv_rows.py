"""The rows of a CSV file as text, each with its number, and the bad rows.

This file splits rows into fields, and does not use types, units or blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.column_types import Errors
from overnight.tasks.ingest.formats.csv_header import column_names, repeated_headers
from overnight.tasks.ingest.formats.text_lines import MARK, UTF_8, Utf8File, whole_lines
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file
from overnight.tasks.ingest.versioned_file import SourceFile

# The bytes of a block, which the reader has in memory. A row that is longer than a block needs the next size.
BLOCK_BYTES = (4 * 2**20, 64 * 2**20, 512 * 2**20)
# bad rows per file with their own message: a wrong delimiter makes every row bad
DESCRIBED_ROWS = 10_000


@dataclass
class CsvRows:
    """Some rows of a file: numbers of good rows (int64), their text columns, and the errors of bad rows by number.

    Numbers are positions in the file from 0, and bad rows count.
    """

    numbers: np.ndarray
    text: pa.Table
    errors: Errors

    @property
    def stop(self) -> int:
        """Return the number after the last row; 0 if there are no rows."""
        return max([-1, *self.numbers[-1:].tolist(), *self.errors]) + 1

    def after(self, start: int) -> "CsvRows":
        is_later = self.numbers >= start
        errors = {number: error for number, error in self.errors.items() if number >= start}
        return CsvRows(self.numbers[is_later], self.text.filter(pa.array(is_later)), errors)

    def without(self, positions: np.ndarray, error: RowError) -> "CsvRows":
        """Return the rows with those at `positions` of the text as bad ones."""
        good = np.setdiff1d(np.arange(len(self.text)), positions)
        errors = self.errors | dict.fromkeys(self.numbers[positions].tolist(), error)
        return CsvRows(self.numbers[good], self.text.take(pa.array(good)), errors)


@dataclass
class CsvFile:
    """A CSV file and how its text is split. `column_names` is None if the file has a header line.

    Reading sets `damage`, the error that ended the file early, and `is_marked`, if some of the text was not UTF-8.
    """

    file: SourceFile
    delimiter: str
    column_names: list[str] | None
    encoding: str = UTF_8
    null_values: list[str] | None = None
    damage: Exception | None = None
    is_marked: bool = False

    def first_rows(self, names: list[str]) -> pa.Table:
        """Return the first good rows of the file, up to some MiB, as text. Raise the error of a file without any."""
        for rows in self.rows(names):
            if len(rows.text) or not self.damage:
                return rows.text
        raise self.damage or AssertionError("unreachable: rows yields a table, or there is damage")

    def rows(self, names: list[str]) -> Iterator[CsvRows]:
        """Yield the rows of the file. `names` are the columns that it probably has; with others it is opened twice."""
        next_number = 0
        for block_bytes in BLOCK_BYTES:
            self.damage = None
            for rows in self._rows(names, block_bytes):
                yield rows.after(next_number)  # larger blocks start from the beginning
                next_number = max(next_number, rows.stop)
            if not self.damage or not _is_too_long(self.damage, block_bytes):
                return

    def _rows(self, names: list[str], block_bytes: int) -> Iterator[CsvRows]:
        count, bad, columns = 0, Errors(), list[str]()
        try:
            file, reader = self._opened(names, bad, block_bytes)
            with reader:
                columns = column_names(reader.schema.names)
                for batch in reader:
                    self.is_marked = file.is_marked
                    # The reader drops bad rows and reports their numbers; the good ones fill the gaps between them.
                    numbers = np.arange(count, count + len(batch) + len(bad))
                    numbers = np.setdiff1d(numbers, np.fromiter(bad, np.int64))[: len(batch)]
                    if not len(numbers):
                        continue
                    count = int(numbers[-1]) + 1
                    before = {number: bad.pop(number) for number in list(bad) if number < count}
                    data = pa.Table.from_batches([batch]).rename_columns(columns)
                    yield _without_bad_rows(CsvRows(numbers, data, before), file)
            self.damage = file.damage
        except Exception as error:
            if not is_corrupt_file(error):
                raise
            self.damage = error
            if isinstance(error, RowError) and not columns:  # the file has no valid header line
                bad.clear()
        if self.damage and _is_too_long(self.damage, block_bytes):
            return
        for number in range(count, max(bad, default=0)):
            bad.setdefault(number, RowError(f"cannot be read: {self.damage}"))
        # a name may occur twice
        nothing = pa.Table.from_arrays([pa.array([], pa.string())] * len(columns), columns)
        yield CsvRows(np.empty(0, np.int64), nothing, bad)

    def _opened(self, names: list[str], bad: Errors, block_bytes: int) -> tuple[Utf8File, pcsv.CSVStreamingReader]:
        """Return the file and its rows as text."""
        file = Utf8File(whole_lines(self.file, (b"\n", b"\r"), self.encoding))
        reader = self._reader(file, bad, names, block_bytes)
        columns = reader.schema.names
        if set(columns) <= set(names):
            return file, reader
        reader.close()
        bad.clear()
        return self._opened(columns, bad, block_bytes)

    def _reader(self, file: Utf8File, bad: Errors, names: list[str], block_bytes: int) -> pcsv.CSVStreamingReader:
        """Return pyarrow's reader of the rows. Columns in `names` are text. Bad rows are added to `bad` by number."""
        errors_by_fields: dict[int, RowError] = {}

        def remember(row: pcsv.InvalidRow) -> str:
            # The reader counts from 1, the header line included.
            number = int(row.number) - (1 if self.column_names else 2)
            reason = f"expected {row.expected_columns} fields, found {row.actual_columns}"
            if len(bad) < DESCRIBED_ROWS:
                bad[number] = RowError(f"{reason}: {row.text[:200].replace(MARK, '�')}")
            else:
                bad[number] = errors_by_fields.setdefault(row.actual_columns, RowError(reason))
            return "skip"

        try:
            reader = pcsv.open_csv(
                file,
                pcsv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=self.column_names),
                pcsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=remember),
                pcsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=self.null_values,
                    strings_can_be_null=self.null_values is not None,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error) or file.damage:
                raise file.damage or error from None
            raise RowError(f"expected {'rows' if self.column_names else 'a header line'}, found none") from error
        if MARK in "".join(reader.schema.names):
            raise RowError("expected UTF-8, found other bytes in the header line; see source.encoding")
        return reader


def _without_bad_rows(rows: CsvRows, file: Utf8File) -> CsvRows:
    """Return the rows without an open quote at the end of the file, and without header lines."""
    if file.at_end and file.quotes % 2 and str(rows.text.columns[-1][-1]).endswith("\n"):
        error = RowError("expected a closing quote, found the end of the file")
        rows = rows.without(np.array([len(rows.text) - 1]), error)
    if len(positions := repeated_headers(rows.text)):
        names = ", ".join(rows.text.column_names)
        error = RowError(f"expected a row, found the names of the columns again: {names}")
        rows = rows.without(positions, error)
    return rows


def _is_too_long(error: Exception, block_bytes: int) -> bool:
    return "block size" in str(error) and block_bytes != BLOCK_BYTES[-1]
