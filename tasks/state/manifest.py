"""The manifest: the immutable list of a partition's units, taken once a generation and kept as Parquet."""

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
COUNTS = ["size", "first_row", "rows"]  # columns of `UNITS`: not the paths, of which there may be millions
UNITS = pa.schema(
    [
        ("unit", pa.int64()),
        ("path", pa.string()),
        ("uri", pa.string()),
        ("size", pa.int64()),
        ("version", pa.string()),
        ("first_row", pa.int64()),
        ("rows", pa.int64()),  # null: not known before the unit is read
        ("row_group", pa.int32()),
    ]
)


@dataclass
class ListingDigest:
    """What passes of a listing tells in the end, so that nobody has to keep it: their number, digest, newest change."""

    count: int = 0
    newest_change: float | None = None
    has_times: bool = True
    _sha: Any = field(default_factory=hashlib.sha256)

    def of(self, files: Iterable[File]) -> Iterator[File]:
        """The files, counted as they pass."""
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
        """One hash over path, size and version of every file: it changes when the inputs do."""
        return str(self._sha.hexdigest())


def census(files: Iterable[File]) -> ListingDigest:
    """Of all the files, one after another."""
    found = ListingDigest()
    for _ in found.of(files):
        pass
    return found


def digest(files: Iterable[File]) -> str:
    """One hash over path, size and version of every file: it changes when the inputs do."""
    return census(files).digest


class ManifestWriter:
    """Writes a manifest as its units come; nothing but a row group of them is held.

    Between `begin_manifest` and the end of its body; `finish` has to be called in it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._writer = pq.ParquetWriter(file, UNITS, compression="zstd")
        self._waiting = UNITS.empty_table()
        self.count = 0

    def add(self, units: pa.Table) -> None:
        """Numbers the units on from those before, whatever they are numbered."""
        numbers = pa.array(np.arange(self.count, self.count + len(units)))
        units = units.set_column(0, UNITS.field("unit"), numbers).replace_schema_metadata(None)
        self.count += len(units)
        self._waiting = pa.concat_tables([self._waiting, units])
        while len(self._waiting) >= ROWS_A_GROUP:
            self._writer.write_table(self._waiting[:ROWS_A_GROUP])
            self._waiting = self._waiting[ROWS_A_GROUP:]

    def finish(
        self,
        inputs: str,
        schema: pa.Schema | None,
        snapshot: str = "",
        passed_over: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """In the footer are `inputs`, the digest of the files, and what all units are read as, if they are.

        schema: their columns and types. snapshot: the version of the table that they are of. passed_over: what the
        listing found besides, as the receipt has it.
        """
        metadata: dict[str, str | bytes] = {"inputs": inputs, "passed_over": json.dumps(passed_over or {})}
        if snapshot:
            metadata["snapshot"] = snapshot
        if schema is not None:
            metadata["schema"] = base64.b64encode(schema.serialize().to_pybytes())
        self._writer.write_table(self._waiting)
        self._writer.add_key_value_metadata(metadata)

    def close(self) -> None:
        self._writer.close()


@contextlib.contextmanager
def begin_manifest(location: Location) -> Iterator[ManifestWriter]:
    """A manifest that is there when the body ends well, whole, and else is not."""
    with location.writing() as file:
        manifest = ManifestWriter(file)
        try:
            yield manifest
        finally:
            manifest.close()  # else it would write to the closed file when it is collected


def read_schema(location: Location) -> pa.Schema | None:
    """The columns and types that every attempt reads all units as; None where the files themselves say."""
    with location.open() as file:
        encoded = pq.ParquetFile(file).metadata.metadata.get(b"schema")
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded))) if encoded else None


def with_warnings(schema: pa.Schema, warnings: Sequence[str]) -> pa.Schema:
    """Return what all units are read as, with sentences about what may be wrong with it."""
    return schema.with_metadata({WARNINGS: orjson.dumps(warnings)}) if warnings else schema


def read_warnings(location: Location) -> list[str]:
    """Return the sentences that `with_warnings` added to the manifest's schema."""
    schema = read_schema(location)
    return list(orjson.loads(((schema.metadata if schema else None) or {}).get(WARNINGS, b"[]")))


def read_snapshot(location: Location) -> str:
    """The version of the table that all units are of, as the source named it; empty where it has none."""
    with location.open() as file:
        return str(pq.ParquetFile(file).metadata.metadata.get(b"snapshot", b"").decode())


def read_passed_over(location: Location) -> dict[str, dict[str, Any]]:
    """What the listing passed over, by reason; nothing in a manifest of before it was counted."""
    with location.open() as file:
        return dict(json.loads(pq.ParquetFile(file).metadata.metadata.get(b"passed_over", b"{}")))


def read_manifest(location: Location, columns: Sequence[str] | None = None) -> tuple[pa.Table, str]:
    """The units, or some of their columns, and the digest of the files they came from. Raises `FileNotFoundError`.

    Of ten million files the paths, URIs and versions are 2 GB, the numbers of rows 80 MB.
    """
    with location.open() as file:
        manifest = pq.ParquetFile(file)
        return manifest.read(columns), manifest.metadata.metadata[b"inputs"].decode()


def read_units(location: Location, numbers: np.ndarray) -> pa.Table:
    """The units of these numbers, which ascend."""
    return pa.concat_tables([UNITS.empty_table(), *iterate_units(location, numbers)])


def iterate_units(location: Location, numbers: np.ndarray) -> Iterator[pa.Table]:
    """The units of these numbers, which ascend, holding no more than a row group of the manifest at a time."""
    first = 0
    with location.open() as file:
        manifest = pq.ParquetFile(file)
        for group in range(manifest.num_row_groups):
            after = first + manifest.metadata.row_group(group).num_rows
            low, high = np.searchsorted(numbers, [first, after])
            if low < high:
                yield manifest.read_row_group(group).cast(UNITS).take(numbers[low:high] - first)
            first = after
