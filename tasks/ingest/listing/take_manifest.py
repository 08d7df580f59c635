"""Takes a partition's manifest: lists its files and writes their units as they are found, some thousand at a time.

For any number of files, memory holds only those, and a row group of the manifest.
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


def take_manifest(place: Location, source: Source, partition: str, limit_rows: int | None = None) -> None:
    """Write the manifest of all inputs, or of their first `limit_rows` rows; its digest covers all inputs.

    Raise `InputError` if they cannot be listed, or there are none, and `ServiceUnavailable` if the error may pass.
    """
    with translate_listing_errors(source.place(partition)):
        snapshot = source.snapshot(partition)
    source = source.at(snapshot) if snapshot else source
    found, first, seen = ListingDigest(), UNITS.empty_table(), dict[pa.Schema, None]()
    with begin_manifest(place) as manifest, counting() as passed:
        for units in _units(source, found.of(stream_inputs(source, partition)), limit_rows, partition):
            manifest.add(units)
            for schema in seen_in(units):
                seen.setdefault(schema)
            if len(first) < FIRST_UNITS:
                first = pa.concat_tables([first, units.cast(UNITS)])[:FIRST_UNITS]
        if not manifest.count and not source.allow_empty:
            raise InputError(f"source.path: {found.count} files at {source.place(partition)}, but no rows.")
        columns = source.full_schema(source.common_schema(first, partition), seen)
        manifest.finish(found.digest, columns, snapshot, passed.found)


def _units(source: Source, files: Iterator[File], limit_rows: int | None, partition: str) -> Iterator[pa.Table]:
    """Yield the units. Consume all files, also after the last unit of a sample."""
    left = limit_rows
    for some in iter(lambda: list(islice(files, FILES_AT_ONCE)), []):
        if left == 0:
            continue
        units = source.units(some)
        if left is not None:
            units = limited(source, units, left, partition)
            left -= sum(units["rows"].to_pylist())
        yield units


def limited(source: Source, units: pa.Table, limit_rows: int, partition: str = "all") -> pa.Table:
    """Return units with exactly the first `limit_rows` rows; rows of a unit are counted if their number is unknown."""
    kept, left = [], limit_rows
    schema = source.common_schema(units, partition)
    for unit in units.to_pylist():
        if left <= 0:
            break
        count = unit["rows"] if unit["rows"] is not None else _count(source, unit, schema, left)
        kept.append(unit | {"rows": min(count, left)})
        left -= min(count, left)
    return pa.Table.from_pylist(kept, schema=units.schema)


def _count(source: Source, unit: dict, schema: pa.Schema | None, enough: int) -> int:
    """Return the unit's rows, or `enough` as soon as it has that many."""
    alone = pa.Table.from_pylist([unit | {"settled": None}], schema=PENDING)
    found = 0
    for block in source.read(alone, schema):
        found += int((block["__state"].to_numpy() != blocks.END).sum())
        if found >= enough:
            return enough
    return found
