"""The rows of a CSV file as text, each with its number, and the bad rows.

This file splits rows into fields, and does not use types, units or blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.csv_header import headers, named
from overnight.tasks.ingest.formats.text_lines import MARK, Utf8File, whole_lines
from overnight.tasks.ingest.reading.table_blocks import is_corrupt_file
from overnight.tasks.ingest.versioned_file import SourceFile

# The bytes of a block, which the reader has in memory. A row that is longer than a block needs the next size.
BLOCK_BYTES = (4 * 2**20, 64 * 2**20, 512 * 2**20)
DESCRIBED_ROWS = 10_000  # bad rows per file with their own message: a wrong delimiter makes every row bad

Rows = tuple[np.ndarray, pa.Table, dict[int, Exception]]


@dataclass
class CsvFile:
    """A CSV file and how its text is split. `column_names` is None if the file has a header line.

    `null_values` are the texts that are null unless they have quotes; None if no text is.

    Reading by `rows` sets two fields. `damage` is the error that ended the file early, or None if the file was read to
    its end. `is_marked` is True if some of the text was not UTF-8.
    """

    file: SourceFile
    delimiter: str
    column_names: list[str] | None
    damage: Exception | None = None
    is_marked: bool = False
    null_values: list[str] | None = None

    def first_rows(self, names: list[str]) -> pa.Table:
        """Return the first good rows of the file, up to some MiB of them, as columns of text.

        `names` are the columns that the file probably has. A file with other columns is opened twice. Raise the error
        of a file that cannot be read.
        """
        for _, data, _ in self.rows(names):
            if len(data) or not self.damage:
                return data
        raise self.damage or AssertionError("unreachable: rows yields a table, or there is damage")

    def rows(self, names: list[str]) -> Iterator[Rows]:
        """Yield the rows of the file, some at a time: numbers of good rows, their text columns, and errors of bad rows.

        Numbers (int64) are positions in the file from 0, and bad rows count. Errors have the numbers of their rows as
        keys.

        Args:
            names: The columns that the file probably has. A file with other columns is opened twice.
        """
        settled = 0
        for block_bytes in BLOCK_BYTES:
            self.damage = None
            for numbers, data, bad in self._rows(names, block_bytes):
                fresh = numbers >= settled  # larger blocks start from the beginning
                yield numbers[fresh], data.filter(pa.array(fresh)), {n: e for n, e in bad.items() if n >= settled}
                settled = max([settled, *(numbers[-1:] + 1).tolist(), *(n + 1 for n in bad)])
            if not self.damage or not _is_too_long(self.damage, block_bytes):
                return

    def _rows(self, names: list[str], block_bytes: int) -> Iterator[Rows]:
        count, bad, found = 0, dict[int, Exception](), list[str]()
        try:
            file, reader = self._opened(names, bad, block_bytes)
            with reader:
                found = named(reader.schema.names)
                for batch in reader:
                    self.is_marked = file.is_marked
                    # The reader drops bad rows and reports their numbers; the good ones fill the gaps between them.
                    places = np.arange(count, count + len(batch) + len(bad))
                    numbers = np.setdiff1d(places, np.fromiter(bad, np.int64))[: len(batch)]
                    data = pa.Table.from_batches([batch]).rename_columns(found)
                    if not len(numbers):
                        continue
                    count = int(numbers[-1]) + 1
                    if file.at_end and file.quotes % 2 and str(batch.columns[-1][-1]).endswith("\n"):
                        bad[count - 1] = RowError("expected a closing quote, found the end of the file")
                        numbers, data = numbers[:-1], data[:-1]
                    if len(again := headers(data)):
                        reason = RowError(f"expected a row, found the names of the columns again: {', '.join(found)}")
                        bad |= dict.fromkeys(numbers[again].tolist(), reason)
                        rest = np.setdiff1d(np.arange(len(data)), again)
                        numbers, data = numbers[rest], data.take(pa.array(rest))
                    yield numbers, data, {n: bad.pop(n) for n in list(bad) if n < count}
            self.damage = file.damage
        except Exception as error:
            if not is_corrupt_file(error):
                raise
            self.damage = error
            if isinstance(error, RowError) and not found:  # the file has no valid header line
                bad.clear()
        if self.damage and _is_too_long(self.damage, block_bytes):
            return
        nothing = pa.Table.from_arrays([pa.array([], pa.string())] * len(found), names=found)
        torn = set(range(count, max(bad, default=0))) - set(bad)
        yield np.empty(0, np.int64), nothing, bad | {n: RowError(f"cannot be read: {self.damage}") for n in torn}

    def _opened(
        self, names: list[str], bad: dict[int, Exception], block_bytes: int
    ) -> tuple[Utf8File, pcsv.CSVStreamingReader]:
        """Return the file and its rows as text.

        A file with other columns than `names` is opened again, because pyarrow would convert the other columns to
        types.
        """
        file = Utf8File(whole_lines(self.file, (b"\n", b"\r")))
        reader = self._reader(file, bad, names, block_bytes)
        found = reader.schema.names
        if set(found) <= set(names):
            return file, reader
        reader.close()
        bad.clear()
        return self._opened(found, bad, block_bytes)

    def _reader(
        self, file: Utf8File, bad: dict[int, Exception], names: list[str], block_bytes: int
    ) -> pcsv.CSVStreamingReader:
        """Return pyarrow's reader of the rows. Columns in `names` are text. Bad rows are added to `bad` by number."""
        undescribed: dict[int, RowError] = {}

        def remember(row: pcsv.InvalidRow) -> str:
            # The reader counts from 1, the header line included.
            number = int(row.number) - (1 if self.column_names else 2)
            found = f"expected {row.expected_columns} fields, found {row.actual_columns}"
            if len(bad) < DESCRIBED_ROWS:
                bad[number] = RowError(f"{found}: {row.text[:200].replace(MARK, '�')}")
            else:
                bad[number] = undescribed.setdefault(row.actual_columns, RowError(found))
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
        if any(MARK in name for name in reader.schema.names):
            raise RowError("expected UTF-8, found other bytes in the header line")
        return reader


def _is_too_long(error: Exception, block_bytes: int) -> bool:
    return "block size" in str(error) and block_bytes != BLOCK_BYTES[-1]
