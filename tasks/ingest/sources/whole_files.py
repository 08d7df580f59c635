"""Files that are one row each, read whole and many at a time.

Columns out: `row_id`, `uri`, the content, `label`. A subclass interprets the bytes.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file, too_large
from overnight.tasks.ingest.reading.table_blocks import BYTES_AT_ONCE
from overnight.tasks.ingest.reading.unit_rows import file_units
from overnight.tasks.ingest.source import GIB, MaxFileBytes
from overnight.tasks.ingest.versioned_file import read_whole
from overnight.tasks.rows import blocks
from overnight.tasks.rows.arrow_types import is_bytes
from overnight.tasks.storage.file_info import TooLarge
from overnight.tasks.storage.location import File

FILES_AT_ONCE = 128


class WholeFiles(FolderSource):
    """The base class of sources that read each file below the directory as one row, with its content in one column.

    A leaf sets the name of this column in `column`, and its type in `type`.
    """

    label_from: Annotated[
        Literal["parent"] | None, Field(description="parent: the name of the file's folder becomes the column label.")
    ] = None

    max_file_bytes: MaxFileBytes = GIB

    rows_are_files: ClassVar[bool] = True
    column: ClassVar[str]
    type: ClassVar[pa.DataType] = pa.large_binary()

    @property
    def holds_images(self) -> bool:
        return self.field().name == "image"

    def field(self) -> pa.Field:
        """Return the name and type of the column with the contents of the files."""
        return pa.field(self.column, self.type)

    def column_names_made(self) -> list[str] | None:
        if type(self).more_columns is not WholeFiles.more_columns:
            return None
        return [self.field().name, *(["label"] if self.label_from else [])]

    def media_columns(self) -> list[str]:
        return [self.field().name] if is_bytes(self.field().type) else []

    def contents(self, units: pa.Table) -> list[bytes | Exception]:
        """Return the contents of the files of `units`. An error takes the place of a content that cannot be read."""
        return read_whole([self.file(unit, unit["size"]) for unit in units.to_pylist()], self.max_file_bytes)

    def listed_sizes(self, units: pa.Table) -> list[int]:
        """Return the size of each file in bytes, as the listing has it; 0 if it is unknown."""
        return list(units["size"].to_pylist())

    def more_columns(
        self, units: pa.Table, schema: pa.Schema | None
    ) -> tuple[dict[str, pa.Array], dict[int, Exception]]:
        """Return further columns, of one value per unit, and the errors of units without a value, by position."""
        if not self.label_from:
            return {}, {}
        return {"label": pa.array([uri.split("/")[-2] for uri in units["uri"].to_pylist()])}, {}

    def value(self, content: bytes) -> Any:
        """Return the value of the column for a file's bytes. Raise `RowError` to quarantine the file."""
        return content

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, repeat(1))

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        sizes = np.maximum(units["size"].to_numpy(), 1)
        groups = np.maximum(np.cumsum(sizes) // BYTES_AT_ONCE, np.arange(len(units)) // FILES_AT_ONCE)
        for group in np.unique(groups):
            yield from self._fetch(units.filter(pa.array(groups == group)), schema)

    def _fetch(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        numbers, paths, uris = (units[name].to_pylist() for name in ("unit", "path", "uri"))
        more, errors = self.more_columns(units, schema)
        values: dict[int, Any] = {}
        for row, content in enumerate(self._contents_within_limit(units)):
            value = content if isinstance(content, Exception) else self._value(content)
            if isinstance(value, Exception):
                errors.setdefault(row, value)
            elif row not in errors:
                values[row] = value
        for error in errors.values():
            if not is_corrupt_file(error):
                # the storage failed, not the file: Ray Data retries, then the run fails
                raise error
        good = list(values)
        if good:
            field = self.field()
            units_read = units.take(pa.array(good))
            columns = {"row_id": units_read["path"], "uri": units_read["uri"]}
            columns[field.name] = pa.array(list(values.values()), field.type)
            for name, column in more.items():
                columns[name] = column.take(pa.array(good))
            numbers_read = units_read["unit"].to_numpy()
            yield blocks.with_hidden(pa.table(columns), numbers_read, np.zeros(len(good), np.int64))
        for row, error in sorted(errors.items()):
            identity = {"row_id": [paths[row]], "uri": [uris[row]]}
            yield blocks.quarantined_block(identity, numbers[row], [0], "ingest", [error])

    def _contents_within_limit(self, units: pa.Table) -> list[bytes | Exception]:
        """Return `contents`, with an error for each file that is too large, which is not read if its size is known."""
        sizes = self.listed_sizes(units)
        contents: list[bytes | Exception] = list(map(self._too_large, sizes))
        small = np.flatnonzero(np.array(sizes) <= self.max_file_bytes).tolist()
        if not small:
            return contents
        for row, content in zip(small, self.contents(units.take(small)), strict=True):
            contents[row] = content
            if isinstance(content, TooLarge):
                contents[row] = self._too_large(content.size)
        return contents

    def _too_large(self, size: int | None) -> RowError:
        return too_large("a file", size, self.max_file_bytes, "max_file_bytes")

    def _value(self, content: bytes) -> Any:
        try:
            return self.value(content)
        except RowError as error:
            return error
