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


def take_manifest(place: Location, source: Source, partition: str, limit_rows: int | None = None) -> None:
    """Write the manifest of all inputs, or of their first `limit_rows` rows, to `place`. Its digest covers all inputs.

    Raise `InputError` if they cannot be listed, or if there are no files or rows and the source's `allow_empty` is
    False. Raise `ServiceUnavailable` if a later attempt may succeed.
    """
    source, snapshot = _now(source, partition)
    found, first, seen = ListingDigest(), UNITS.empty_table(), dict[pa.Schema, None]()
    with begin_manifest(place) as manifest, counting() as passed:
        for units in _units(source, found.of(stream_inputs(source, partition)), limit_rows, partition):
            manifest.add(units)
            for schema in seen_in(units):
                seen.setdefault(schema)
            if len(first) < FIRST_UNITS:
                first = pa.concat_tables([first, units.cast(UNITS)])[:FIRST_UNITS]
        if not manifest.count and not source.allow_empty:
            where = f"source.{source.located_by}: {found.count} files at {source.place(partition)}"
            raise InputError(f"{where}, but no rows.")
        columns = source.full_schema(source.common_schema(first, partition), seen)
        manifest.finish(found.digest, columns, snapshot, passed.found)


def first_units(source: Source, partition: str, rows: int) -> tuple[Source, pa.Table, pa.Schema | None]:
    """Return the source fixed to its current version, the units of its first `rows` rows, and the schema of these rows.

    The listing ends early, so a run, which lists all files, may read these rows with further columns or other types.
    The schema is None if each file determines its own.

    Raise `InputError` if the inputs cannot be listed, or if there are no files or rows and the source's `allow_empty`
    is False. Raise `ServiceUnavailable` if a later attempt may succeed.
    """
    source, _ = _now(source, partition)
    kept, first, seen = [UNITS.empty_table()], UNITS.empty_table(), dict[pa.Schema, None]()
    left, count = rows, 0
    with counting():
        files = stream_inputs(source, partition)
        while left and (some := list(islice(files, FIRST_FILES))):
            count += len(some)
            units = source.units(some)
            seen |= dict.fromkeys(seen_in(units))
            first = pa.concat_tables([first, units.cast(UNITS)])[:FIRST_UNITS]
            kept.append(limited(source, units, left, partition).cast(UNITS))
            left -= sum(kept[-1]["rows"].to_pylist())
    units = pa.concat_tables(kept)
    if not len(units) and not source.allow_empty:
        raise InputError(f"source.{source.located_by}: {count} files at {source.place(partition)}, but no rows.")
    units = units.set_column(0, UNITS.field("unit"), pa.array(range(len(units)), pa.int64()))
    return source, units, source.full_schema(source.common_schema(first, partition), seen)


def _now(source: Source, partition: str) -> tuple[Source, str]:
    """Return the source in its current version, and that version, which is empty if the source has no versions."""
    with translate_listing_errors(source.place(partition)):
        snapshot = source.snapshot(partition)
    return (source.at(snapshot) if snapshot else source), snapshot


def _units(source: Source, files: Iterator[File], limit_rows: int | None, partition: str) -> Iterator[pa.Table]:
    """Yield the units. Consume all files, also after the last unit of a sample, because the digest covers them."""
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
    """Return the first of `units` that together have `limit_rows` rows. The last of them is cut to fit.

    A unit whose number of rows is unknown is read to count them.
    """
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
    """Return the number of rows of a unit, or `enough` if there are more."""
    alone = pa.Table.from_pylist([unit | {"settled": None}], schema=PENDING)
    found = 0
    for block in source.read(alone, schema):
        found += int((block["__state"].to_numpy() != blocks.END).sum())
        if found >= enough:
            return enough
    return found
