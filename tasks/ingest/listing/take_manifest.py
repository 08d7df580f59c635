"""Takes a partition's manifest: lists its files and writes their units as they are found, some thousand at a time.

For any number of files, memory holds only these units and a row group of the manifest.
"""

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import stream_inputs
from overnight.tasks.ingest.source import Source, seen_in
from overnight.tasks.rows import blocks
from overnight.tasks.state.manifest import UNITS, ListingDigest, begin_manifest
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.storage.error_translation import translate_listing_errors
from overnight.tasks.storage.location import File, Location
from overnight.tasks.storage.skipped_files import counting

FILES_AT_ONCE = 2**12
FIRST_UNITS = 1000  # enough to infer the schema
FIRST_FILES = 100  # the Parquet source infers its columns from this number of files


class _Columns:
    """The columns of a partition, which the first units and the schemas of all opened files show."""

    def __init__(self) -> None:
        self._first = UNITS.empty_table()
        self._seen = dict[pa.Schema, None]()

    def add(self, units: pa.Table) -> None:
        self._seen |= dict.fromkeys(seen_in(units))
        if len(self._first) < FIRST_UNITS:
            self._first = pa.concat_tables([self._first, units.cast(UNITS)])[:FIRST_UNITS]

    def schema(self, source: Source, partition: str) -> pa.Schema | None:
        return source.full_schema(source.common_schema(self._first, partition), self._seen)


def take_manifest(place: Location, source: Source, partition: str, most_rows: int | None = None) -> None:
    """Write the manifest of all inputs, or of their first `most_rows` rows. Raise `InputError` if there are none."""
    source, snapshot = _now(source, partition)
    listing, columns = ListingDigest(), _Columns()
    with begin_manifest(place) as writer, counting() as skips:
        for units in _units(source, listing.of(stream_inputs(source, partition)), most_rows, partition):
            writer.add(units)
            columns.add(units)
        _require_rows(source, partition, listing.count, writer.count)
        writer.finish(listing.digest, columns.schema(source, partition), snapshot, skips.found)


def first_units(source: Source, partition: str, rows: int) -> tuple[Source, pa.Table, pa.Schema | None]:
    """Return the source at its current version, the units of its first `rows` rows, and the schema of these rows.

    The listing ends early, so a run may read these rows with more columns or other types. Raise like `take_manifest`.
    """
    source, _ = _now(source, partition)
    columns, tables, remaining, count = _Columns(), [UNITS.empty_table()], rows, 0
    with counting():
        listing = stream_inputs(source, partition)
        while remaining and (files := list(islice(listing, FIRST_FILES))):
            count += len(files)
            units = source.units(files)
            columns.add(units)
            tables.append(limited(source, units, remaining, partition).cast(UNITS))
            remaining -= sum(tables[-1]["rows"].to_pylist())
    units = pa.concat_tables(tables)
    _require_rows(source, partition, count, len(units))
    units = units.set_column(0, UNITS.field("unit"), pa.array(range(len(units)), pa.int64()))
    return source, units, columns.schema(source, partition)


def _now(source: Source, partition: str) -> tuple[Source, str]:
    """Return the source in its current version, and that version, which is empty if the source has no versions."""
    with translate_listing_errors(source.place(partition)):
        snapshot = source.snapshot(partition)
    return (source.at(snapshot) if snapshot else source), snapshot


def _require_rows(source: Source, partition: str, files: int, units: int) -> None:
    if not units and not source.allow_empty:
        raise InputError(f"source.{source.located_by}: {files} files at {source.place(partition)}, but no rows.")


def _units(source: Source, listing: Iterator[File], most_rows: int | None, partition: str) -> Iterator[pa.Table]:
    """Yield the units. Consume all files, also after the last unit of a sample, because the digest covers them."""
    remaining = most_rows
    while files := list(islice(listing, FILES_AT_ONCE)):
        if remaining == 0:
            continue
        units = source.units(files)
        if remaining is not None:
            units = limited(source, units, remaining, partition)
            remaining -= sum(units["rows"].to_pylist())
        yield units


def limited(source: Source, units: pa.Table, most_rows: int, partition: str = "all") -> pa.Table:
    """Return the first of `units` that together have `most_rows` rows. The last of them is cut to fit."""
    first, remaining = [], most_rows
    schema = source.common_schema(units, partition)
    for unit in units.to_pylist():
        if remaining <= 0:
            break
        count = unit["rows"]
        if count is None:
            count = count_rows(source, unit, schema, remaining)
        first.append(unit | {"rows": min(count, remaining)})
        remaining -= min(count, remaining)
    return pa.Table.from_pylist(first, schema=units.schema)


def count_rows(source: Source, unit: dict, schema: pa.Schema | None, enough: int) -> int:
    """Return the number of rows of a unit, or `enough` if there are more."""
    units = pa.Table.from_pylist([unit | {"settled": None}], schema=PENDING)
    count = 0
    for block in source.read(units, schema):
        count += int((block["__state"].to_numpy() != blocks.END).sum())
        if count >= enough:
            return enough
    return count
