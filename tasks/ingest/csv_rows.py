"""The rows of a CSV file as text, each with its number, and those that are none.

It knows the shape of a row, and nothing of types, units or blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from tasks.errors import RowError
from tasks.ingest.tables import is_damage
from tasks.ingest.text_file import MARK, Utf8File, whole_lines
from tasks.ingest.versioned import SourceFile

BLOCK_BYTES = (4 * 2**20, 64 * 2**20, 512 * 2**20)  # the reader holds a block; a row too long for one asks for the next
DESCRIBED_ROWS = 10_000  # bad rows in a row that are told apart: a wrong delimiter makes a bad row of each

Rows = tuple[np.ndarray, pa.Table, dict[int, Exception]]


@dataclass
class CsvFile:
    """A file, and after `rows`: the damage that ended it early, and whether some of the text was no UTF-8."""

    file: SourceFile
    delimiter: str
    column_names: list[str] | None
    damage: Exception | None = None
    is_marked: bool = False

    def inferred_schema(self) -> pa.Schema:
        """Columns and types, judged by the first block. Raises what makes the file unreadable."""
        for block_bytes in BLOCK_BYTES:
            file = self._opened()
            try:
                with self._reader(file, {}, None, block_bytes) as reader:
                    return reader.schema
            except pa.ArrowInvalid as error:
                if not _is_too_long(error, block_bytes):
                    raise file.damage or error from None
        raise AssertionError("unreachable: the last block size raises")

    def rows(self, names: list[str]) -> Iterator[Rows]:
        """(numbers, text columns, errors of bad rows by number); each time all rows up to a further point."""
        settled = 0
        for block_bytes in BLOCK_BYTES:
            self.damage = None
            for numbers, data, bad in self._rows(names, block_bytes):
                fresh = numbers >= settled  # larger blocks begin anew
                yield numbers[fresh], data.filter(pa.array(fresh)), {n: e for n, e in bad.items() if n >= settled}
                settled = max([settled, *(numbers[-1:] + 1).tolist(), *(n + 1 for n in bad)])
            if not self.damage or not _is_too_long(self.damage, block_bytes):
                return

    def _rows(self, names: list[str], block_bytes: int) -> Iterator[Rows]:
        file, count = self._opened(), 0
        bad: dict[int, Exception] = {}
        try:
            with self._reader(file, bad, names, block_bytes) as reader:
                if sorted(reader.schema.names) != sorted(names):
                    raise RowError(f"expected the columns {', '.join(names)}, found {', '.join(reader.schema.names)}")
                for batch in reader:
                    self.is_marked = file.is_marked
                    # The reader drops bad rows and tells their numbers; the good ones fill the gaps between them.
                    places = np.arange(count, count + len(batch) + len(bad))
                    numbers = np.setdiff1d(places, np.fromiter(bad, np.int64))[: len(batch)]
                    data = pa.Table.from_batches([batch]).select(names)
                    if not len(numbers):
                        continue
                    count = int(numbers[-1]) + 1
                    if file.at_end and file.quotes % 2 and str(batch.columns[-1][-1]).endswith("\n"):
                        bad[count - 1] = RowError("expected a closing quote, found the end of the file")
                        numbers, data = numbers[:-1], data[:-1]
                    yield numbers, data, {n: bad.pop(n) for n in list(bad) if n < count}
            self.damage = file.damage
        except Exception as error:
            if not is_damage(error):
                raise
            self.damage = file.damage or error
            if isinstance(error, RowError):  # no rows of this table
                bad.clear()
        nothing = pa.table({name: pa.array([], pa.string()) for name in names})
        if self.damage and _is_too_long(self.damage, block_bytes):
            return
        torn = set(range(count, max(bad, default=0))) - set(bad)
        yield np.empty(0, np.int64), nothing, bad | {n: RowError(f"cannot be read: {self.damage}") for n in torn}

    def _opened(self) -> Utf8File:
        return Utf8File(whole_lines(self.file, (b"\n", b"\r")))

    def _reader(
        self, file: Utf8File, bad: dict[int, Exception], names: list[str] | None, block_bytes: int
    ) -> pcsv.CSVStreamingReader:
        """Batches of text columns if they are named, else of inferred types. Bad rows go to `bad` by number."""
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
                pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()) if names else None),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error) or file.damage:
                raise
            raise RowError(f"expected {'rows' if self.column_names else 'a header line'}, found none") from error
        if any(MARK in name for name in reader.schema.names):
            raise RowError("expected UTF-8, found other bytes in the header line")
        return reader


def _is_too_long(error: Exception, block_bytes: int) -> bool:
    return "block size" in str(error) and block_bytes != BLOCK_BYTES[-1]
