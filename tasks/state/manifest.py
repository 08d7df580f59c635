"""The manifest: the immutable list of a partition's units, taken once per generation and kept as Parquet."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.storage.location import File, Location

ROWS_A_GROUP = 2**18
WARNINGS = b"warnings"
COUNTS = ["size", "first_row", "rows"]  # columns of `UNITS` that stay small for millions of units
UNITS = pa.schema(
    [
        ("unit", pa.int64()),
        ("path", pa.string()),
        ("uri", pa.string()),
        ("size", pa.int64()),
        ("version", pa.string()),
        ("first_row", pa.int64()),
        ("rows", pa.int64()),  # null: unknown until the unit is read
        ("row_group", pa.int32()),
    ]
)


@dataclass
class ListingDigest:
    """The number, the hash and the newest change of listed files, computed while the files are iterated."""

    count: int = 0
    newest_change: float | None = None  # seconds since 1970
    has_times: bool = True  # of every file
    _sha: Any = field(default_factory=hashlib.sha256)

    def of(self, files: Iterable[File]) -> Iterator[File]:
        """Yield the same files, and add each to the digest."""
        for file in files:
            self.count += 1
            self._sha.update(f"{file.path}\0{file.size}\0{file.version}\n".encode())
            if file.changed_at is None:
                self.has_times = False
            elif self.newest_change is None or file.changed_at > self.newest_change:
                self.newest_change = file.changed_at
            yield file

    @property
    def digest(self) -> str:
        """Return one hash over path, size and version of every file: it changes when the inputs do."""
        return str(self._sha.hexdigest())


def census(files: Iterable[File]) -> ListingDigest:
    listing = ListingDigest()
    for _ in listing.of(files):
        pass
    return listing


def digest(files: Iterable[File]) -> str:
    return census(files).digest


class ManifestWriter:
    """Writes a manifest while its units arrive. The body of `begin_manifest` calls `finish` at its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._writer = pq.ParquetWriter(file, UNITS, compression="zstd")
        self._buffer = UNITS.empty_table()
        self.count = 0

    def add(self, units: pa.Table) -> None:
        """Add units (schema `UNITS`). They are numbered after the units added before; their own `unit` is replaced."""
        numbers = pa.array(np.arange(self.count, self.count + len(units)))
        units = units.set_column(0, UNITS.field("unit"), numbers).replace_schema_metadata(None)
        self.count += len(units)
        self._buffer = pa.concat_tables([self._buffer, units])
        while len(self._buffer) >= ROWS_A_GROUP:
            self._writer.write_table(self._buffer[:ROWS_A_GROUP])
            self._buffer = self._buffer[ROWS_A_GROUP:]

    def finish(
        self,
        inputs: str,
        schema: pa.Schema | None,
        snapshot: str = "",
        passed_over: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Write the remaining units, and the footer: the hash of the `inputs`, the files that were skipped by reason.

        `schema` is None if each file has its own; `snapshot` is empty if the source has no versions.
        """
        metadata: dict[str, str | bytes] = {"inputs": inputs, "passed_over": json.dumps(passed_over or {})}
        if snapshot:
            metadata["snapshot"] = snapshot
        if schema is not None:
            metadata["schema"] = base64.b64encode(schema.serialize().to_pybytes())
        self._writer.write_table(self._buffer)
        self._writer.add_key_value_metadata(metadata)

    def close(self) -> None:
        self._writer.close()


@contextlib.contextmanager
def begin_manifest(location: Location) -> Iterator[ManifestWriter]:
    """Yield a writer of a manifest. The manifest exists, whole, only if the body succeeds."""
    with location.writing() as file:
        manifest = ManifestWriter(file)
        try:
            yield manifest
        finally:
            manifest.close()  # otherwise garbage collection would write to the closed file


def read_schema(location: Location) -> pa.Schema | None:
    """Return the columns and types with which every attempt reads all units; None if each file has its own."""
    encoded = _read_metadata(location).get(b"schema")
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded))) if encoded else None


def with_warnings(schema: pa.Schema, warnings: Sequence[str]) -> pa.Schema:
    """Return the schema with the sentences `warnings` about it in its metadata. `ManifestWriter.finish` takes it."""
    return schema.with_metadata({WARNINGS: orjson.dumps(warnings)}) if warnings else schema


def read_warnings(location: Location) -> list[str]:
    """Return the warnings that `with_warnings` added to the manifest's schema."""
    schema = read_schema(location)
    if schema is None or schema.metadata is None:
        return []
    return list(orjson.loads(schema.metadata.get(WARNINGS, b"[]")))


def read_snapshot(location: Location) -> str:
    """Return the version of the source's table, in the source's notation; empty if the source has no versions."""
    return str(_read_metadata(location).get(b"snapshot", b"").decode())


def read_passed_over(location: Location) -> dict[str, dict[str, Any]]:
    """Return what the listing skipped: reason -> the number and some names of the files."""
    return dict(json.loads(_read_metadata(location).get(b"passed_over", b"{}")))


def _read_metadata(location: Location) -> dict[bytes, bytes]:
    with location.open() as file:
        return dict(pq.read_metadata(file).metadata)


def read_manifest(location: Location, columns: Sequence[str] | None = None) -> tuple[pa.Table, str]:
    """Return all units, with all `columns` or only the named ones, and the hash of the listed files."""
    with location.open() as file:
        manifest = pq.ParquetFile(file)
        return manifest.read(columns), manifest.metadata.metadata[b"inputs"].decode()


def read_units(location: Location, numbers: np.ndarray) -> pa.Table:
    """Return the units with these numbers, which must be ascending, as a table with schema `UNITS`."""
    return pa.concat_tables([UNITS.empty_table(), *iterate_units(location, numbers)])


def iterate_units(location: Location, numbers: np.ndarray) -> Iterator[pa.Table]:
    """Yield the same units as `read_units`. Memory holds one row group of the manifest at a time."""
    first = 0
    with location.open() as file:
        manifest = pq.ParquetFile(file)
        for group in range(manifest.num_row_groups):
            end = first + manifest.metadata.row_group(group).num_rows
            low, high = np.searchsorted(numbers, [first, end])
            if low < high:
                yield manifest.read_row_group(group).cast(UNITS).take(numbers[low:high] - first)
            first = end
