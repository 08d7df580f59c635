"""NumPy files: one entry along the first axis, one row. Columns out: `row_id` (`path#n`), `uri`, and the arrays.

A .npy file becomes one column with the name in `column`, or if it contains records, one column per field. A .npz file
has one column per array, all of the same length. An entry of more than a single value is an array. A .npy file is read
in parts of equal size in bytes. If it is cut off, the whole rows are read, and the missing rest is one bad row. Pickled
objects are never loaded.
"""

import contextlib
import io
import zipfile
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.formats.npy import Header, read_header, read_rows
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file
from overnight.tasks.ingest.reading.table_blocks import BYTES_AT_ONCE
from overnight.tasks.ingest.reading.unit_rows import Judged, RowRange, counted_units
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.rows.tensors import to_arrow
from overnight.tasks.storage.location import File

PART_BYTES = 32 * 2**20
ROWS_AT_ONCE = 8192
# at most 1,032: https://zlib.net/zlib_tech.html
MOST_PACKED = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1040}
MOST_PACKED_OTHERWISE = 2**20
LAST_CHARACTER, SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


class Numpy(FolderSource):
    """Every file below the directory that ends in .npy or .npz."""

    kind: Literal["numpy"] = "numpy"
    column: Annotated[str, Field(min_length=1, description="The name of a .npy file's array.")] = "data"

    extensions: ClassVar[tuple[str, ...]] = (".npy", ".npz")

    def units(self, files: list[File]) -> pa.Table:
        return counted_units(files, self._parts)

    def _parts(self, file: File) -> list[RowRange]:
        with self.file({"uri": file.uri, "version": file.version}, file.size).open() as handle:
            if _is_archive(file.uri):
                with _arrays(handle) as arrays:
                    return [RowRange(0, _length(arrays), 0, file.size)]
            header = read_header(handle)
        if header.is_fortran and header.rows > file.size:
            # one bad row: the declared number is not credible
            raise RowError("the file ends before its array does")
        if header.is_fortran or not header.rows:
            return [RowRange(0, header.rows, 0, file.size)]
        whole = (file.size - header.start) // header.row_bytes
        rows = header.rows if header.rows <= whole else whole + 1
        part = max(1, PART_BYTES // header.row_bytes)
        parts = []
        for number, first in enumerate(range(0, rows, part)):
            count = min(part, rows - first)
            parts.append(RowRange(first, count, number, count * header.row_bytes))
        return parts

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        with self.file(unit).open() as handle:
            if _is_archive(unit["uri"]):
                yield from _archived(handle, unit["rows"])
                return
            header = read_header(handle)
            if not header.is_fortran:
                handle.seek(header.start + unit["first_row"] * header.row_bytes)
            for values in read_rows(handle, header, unit["rows"], _rows_at_once(header.row_bytes)):
                if values.dtype.names and values.ndim == 1:
                    yield _judged({name: values[name] for name in values.dtype.names})
                else:
                    yield _judged({self.column: values})


def _is_archive(uri: str) -> bool:
    return uri.lower().endswith(".npz")


@contextlib.contextmanager
def _arrays(handle: Any) -> Iterator[dict[str, tuple[Header, Any]]]:
    """Yield a mapping from the name of each array in an archive to its header and its data."""
    try:
        packed_bytes = handle.seek(0, io.SEEK_END)
        with zipfile.ZipFile(handle) as archive, contextlib.ExitStack() as members:
            arrays = {}
            for name in archive.namelist():
                member = members.enter_context(archive.open(name))
                header = read_header(member)
                _refuse_impossible(archive.getinfo(name), packed_bytes)
                size = archive.getinfo(name).file_size - header.start
                if size != header.rows * header.row_bytes:
                    raise RowError(f"array {name}: expected {header.rows} rows, found {size:,} bytes")
                arrays[name.removesuffix(".npy")] = header, member
            if not arrays:
                raise RowError("expected arrays as numpy.savez writes them, found an empty archive")
            yield arrays
    except Exception as error:  # unpacking an archive raises errors of many kinds
        if isinstance(error, RowError) or not is_corrupt_file(error):
            raise
        raise RowError(f"expected arrays as numpy.savez writes them: {error_message(error)}") from error


def _length(arrays: dict[str, tuple[Header, Any]]) -> int:
    lengths = {name: header.rows for name, (header, _) in arrays.items()}
    if len(set(lengths.values())) > 1:
        lengths_text = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise RowError(f"expected arrays of the same length, found {lengths_text}")
    return next(iter(lengths.values()))


def _refuse_impossible(member: zipfile.ZipInfo, packed_bytes: int) -> None:
    """Raise `RowError` for an impossible compression ratio: rows are counted by the sizes that an archive has."""
    most = member.compress_size * MOST_PACKED.get(member.compress_type, MOST_PACKED_OTHERWISE)
    if member.compress_size > packed_bytes or member.file_size > most:
        raise RowError(
            f"array {member.filename}: expected the packed size of {member.file_size:,} bytes, found "
            f"{member.compress_size:,} bytes, packed in a file of {packed_bytes:,}"
        )


def _archived(handle: Any, count: int) -> Iterator[Judged]:
    with _arrays(handle) as arrays:
        _length(arrays)
        rows_at_once = _rows_at_once(sum(header.row_bytes for header, _ in arrays.values()))
        streams = [read_rows(member, header, count, rows_at_once) for header, member in arrays.values()]
        for values in zip(*streams, strict=True):
            yield _judged(dict(zip(arrays, values, strict=True)))


def _judged(columns: dict[str, np.ndarray]) -> Judged:
    """Return the rows as a table, and errors of rows whose texts have invalid characters: NumPy accepts any number."""
    errors: dict[int, Exception] = {}
    arrays = {}
    for name, values in columns.items():
        is_bad = _has_no_characters(values)
        if is_bad.any():
            reason = RowError(f"column {name}: expected text, found numbers that are not characters of Unicode")
            errors |= dict.fromkeys(np.flatnonzero(is_bad).tolist(), reason)
        try:
            arrays[name] = to_arrow(np.where(is_bad, "", values) if is_bad.any() else values)
        except (pa.ArrowException, ValueError, TypeError) as error:
            sentence = f"column {name}: expected values with an Arrow type"
            raise RowError(f"{sentence}, found {values.dtype}: {error}") from None
    return Judged(pa.table(arrays), errors)


def _has_no_characters(values: np.ndarray) -> np.ndarray:
    """Return True for each text with a number that is not a character of Unicode."""
    if values.dtype.kind != "U" or values.ndim != 1 or not values.nbytes:
        return np.zeros(len(values), bool)
    codes = np.ascontiguousarray(values).view(f"{values.dtype.byteorder}u4").reshape(len(values), -1)
    is_surrogate = (codes >= SURROGATES[0]) & (codes <= SURROGATES[1])
    return np.asarray((is_surrogate | (codes > LAST_CHARACTER)).any(axis=1))


def _rows_at_once(row_bytes: int) -> int:
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // max(row_bytes, 1)))
