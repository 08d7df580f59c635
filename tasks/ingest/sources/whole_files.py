"""Files that are one row each, read whole and many at a time.

Columns out: `row_id`, `uri`, the content, `label`. A subclass interprets the bytes.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.listing.list_files import file_units
from overnight.tasks.ingest.reading.table_blocks import is_corrupt_file
from overnight.tasks.ingest.source import GIB, FolderSource, MaxFileBytes, too_large
from overnight.tasks.ingest.versioned_file import read_whole
from overnight.tasks.rows import blocks
from overnight.tasks.storage.file_info import TooLarge
from overnight.tasks.storage.location import File

FILES_AT_ONCE = 128
BYTES_AT_ONCE = 16 * 2**20


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

    def contents(self, units: pa.Table) -> list[bytes | Exception]:
        """Return the contents of the files of `units`. An error takes the place of a content that cannot be read."""
        return read_whole([self.file(unit, unit["size"]) for unit in units.to_pylist()], self.max_file_bytes)

    def listed_sizes(self, units: pa.Table) -> list[int]:
        """Return the size of each file in bytes, as the listing has it; 0 if it is unknown."""
        return list(units["size"].to_pylist())

    def more_columns(
        self, units: pa.Table, schema: pa.Schema | None
    ) -> tuple[dict[str, pa.Array], dict[int, Exception]]:
        """Return further columns by name, and errors of units for which they cannot be made, by position in `units`.

        Each column has one value per unit. `schema` has the columns and types that `full_schema` returned, or is None.
        """
        if not self.label_from:
            return {}, {}
        return {"label": pa.array([uri.split("/")[-2] for uri in units["uri"].to_pylist()])}, {}

    def value(self, content: bytes) -> Any:
        """Return the value of the column for a file's bytes. Raise `RowError` to quarantine the file."""
        return content

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=1)

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        sizes = np.maximum(units["size"].to_numpy(), 1)
        groups = np.maximum(np.cumsum(sizes) // BYTES_AT_ONCE, np.arange(len(units)) // FILES_AT_ONCE)
        for group in np.unique(groups):
            yield from self._fetch(units.filter(pa.array(groups == group)), schema)

    def _fetch(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        uris, paths = units["uri"].to_pylist(), units["path"].to_pylist()
        values = [content if isinstance(content, Exception) else self._value(content) for content in self._all(units)]
        more, errors = self.more_columns(units, schema)
        values = [errors.get(i, value) for i, value in enumerate(values)]
        good = [i for i, value in enumerate(values) if not isinstance(value, Exception)]
        bad = [i for i, value in enumerate(values) if isinstance(value, Exception)]
        for i in bad:
            if not is_corrupt_file(values[i]):
                raise values[i]  # the storage failed, not the file: Ray Data retries, then the run fails
        numbers = units["unit"].to_numpy()
        if good:
            field = self.field()
            columns = {"row_id": [paths[i] for i in good], "uri": [uris[i] for i in good]}
            table = pa.table(
                {
                    **{name: pa.array(found, pa.string()) for name, found in columns.items()},
                    field.name: pa.array([values[i] for i in good], field.type),
                    **{name: column.take(pa.array(good)) for name, column in more.items()},
                }
            )
            yield blocks.with_hidden(table, numbers[good], np.zeros(len(good), np.int64))
        for i in bad:
            identity = {"row_id": [paths[i]], "uri": [uris[i]]}
            yield blocks.quarantined_block(identity, int(numbers[i]), [0], "ingest", [values[i]])

    def _all(self, units: pa.Table) -> list[bytes | Exception]:
        """Return `contents`, with an error for each file that is too large, which is not read if its size is known."""
        found: list[bytes | Exception] = [self._bounded(size) or b"" for size in self.listed_sizes(units)]
        small = [i for i, content in enumerate(found) if content == b""]
        for i, content in zip(small, self.contents(units.take(small)) if small else [], strict=True):
            found[i] = self._too_large(content.size) if isinstance(content, TooLarge) else content
        return found

    def _bounded(self, size: int) -> RowError | None:
        return self._too_large(size) if size > self.max_file_bytes else None

    def _too_large(self, size: int | None) -> RowError:
        return too_large("a file", size, self.max_file_bytes, "max_file_bytes")

    def _value(self, content: bytes) -> Any:
        try:
            return self.value(content)
        except RowError as error:
            return error
