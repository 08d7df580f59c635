"""Takes a partition's manifest: lists its files and writes their units as they are found, some thousand at a time.

For any number of files, memory holds only these units and a row group of the manifest. A retry of quarantined rows
takes over the manifest of the earlier run. A file that a user repaired is listed and read again as a whole. All other
inputs must be as they were: a published row never belongs to another version than the manifest has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import filterfalse, islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import InputError, shortened
from overnight.tasks.ingest.listing.list_files import list_inputs, stream_inputs
from overnight.tasks.ingest.reading.unit_rows import BROKEN
from overnight.tasks.ingest.source import Source, seen_in
from overnight.tasks.rows import blocks
from overnight.tasks.state import manifest
from overnight.tasks.state.manifest import UNITS, ListingDigest, begin_manifest
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.storage.error_translation import translate_listing_errors
from overnight.tasks.storage.location import File, Location
from overnight.tasks.storage.skipped_files import counting

FILES_AT_ONCE = 2**12
FIRST_UNITS = 1000  # enough to infer the schema
FIRST_FILES = 100  # the Parquet source infers its columns from this number of files
PATHS_SHOWN = 3


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


def take_manifest(place: Location, source: Source, partition: str, limit_rows: int | None = None) -> None:
    """Write the manifest of all inputs, or of their first `limit_rows` rows. Raise `InputError` if there are none."""
    source, snapshot = _now(source, partition)
    listing, columns = ListingDigest(), _Columns()
    with begin_manifest(place) as writer, counting() as skips:
        for units in _units(source, listing.of(stream_inputs(source, partition)), limit_rows, partition):
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


def _units(source: Source, listing: Iterator[File], limit_rows: int | None, partition: str) -> Iterator[pa.Table]:
    """Yield the units. Consume all files, also after the last unit of a sample, because the digest covers them."""
    remaining = limit_rows
    while files := list(islice(listing, FILES_AT_ONCE)):
        if remaining == 0:
            continue
        units = source.units(files)
        if remaining is not None:
            units = limited(source, units, remaining, partition)
            remaining -= sum(units["rows"].to_pylist())
        yield units


def limited(source: Source, units: pa.Table, limit_rows: int, partition: str = "all") -> pa.Table:
    """Return the first of `units` that together have `limit_rows` rows. The last of them is cut to fit."""
    first, remaining = [], limit_rows
    schema = source.common_schema(units, partition)
    for unit in units.to_pylist():
        if remaining <= 0:
            break
        count = unit["rows"]
        if count is None:
            count = _count(source, unit, schema, remaining)
        first.append(unit | {"rows": min(count, remaining)})
        remaining -= min(count, remaining)
    return pa.Table.from_pylist(first, schema=units.schema)


def _count(source: Source, unit: dict, schema: pa.Schema | None, enough: int) -> int:
    """Return the number of rows of a unit, or `enough` if there are more."""
    units = pa.Table.from_pylist([unit | {"settled": None}], schema=PENDING)
    count = 0
    for block in source.read(units, schema):
        count += int((block["__state"].to_numpy() != blocks.END).sum())
        if count >= enough:
            return enough
    return count


@dataclass(frozen=True)
class RetriedInputs:
    """What a retry of the quarantined rows reads. `inputs` is the digest of the current listing.

    `again` are the paths of files that are listed again, and `units` their new units. `gone` are paths of files that no
    longer exist; their rows stay quarantined. If no retry is possible, the sentence `refusal` explains why.
    """

    inputs: str = ""
    again: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    units: pa.Table = field(default_factory=UNITS.empty_table)
    refusal: str = ""


def look_again(source: Source, partition: str, earlier: Location, ranges: pa.Table) -> RetriedInputs:
    """List the inputs, and compare them with the manifest `earlier`. `ranges` are the settled rows of that run."""
    groups, inputs = manifest.read_manifest(earlier, ["row_group"])
    states, units = ranges["state"].to_numpy(), ranges["unit"].to_numpy()
    failures = np.unique(units[states == blocks.QUARANTINED])
    successes = np.unique(units[(states == blocks.LIVE) | (states == blocks.FILTERED)])
    broken = failures[pc.fill_null(groups["row_group"], 0).to_numpy()[failures] == BROKEN]
    again: dict[str, File] = {}
    for unit in manifest.read_units(earlier, broken).to_pylist():
        again[unit["path"]] = File(unit["path"], unit["uri"], unit["size"], unit["version"])
    absent: list[str] = []
    # in memory only if an input changed
    if (digest := manifest.digest(stream_inputs(source, partition))) != inputs:
        files = {file.path: file for file in list_inputs(source, partition)}
        digest = manifest.digest(files.values())
        earlier_files, _ = manifest.read_manifest(earlier, ["path", "version"])
        paths = earlier_files["path"]
        repairable = set(paths.take(pa.array(failures)).to_pylist())
        repairable -= set(paths.take(pa.array(successes)).to_pylist())
        versions = dict(zip(paths.to_pylist(), earlier_files["version"].to_pylist(), strict=True))
        unlike: dict[str, list[str]] = {"new": [], "changed": [], "gone": []}
        other_versions: dict[str, File] = {}
        for path, file in files.items():
            if path in versions and file.version != versions[path]:
                other_versions[path] = file
            elif path not in versions and len(source.units([file])):
                unlike["new"].append(path)
        absent = [path for path in versions if path not in files]
        unlike["changed"] += filterfalse(repairable.__contains__, other_versions)
        unlike["gone"] += filterfalse(repairable.__contains__, absent)
        if any(unlike.values()):
            return RetriedInputs(refusal=f"inputs of rows that are not quarantined changed: {_shown(unlike)}")
        again = {path: file for path, file in again.items() if path in files}
        again |= other_versions
    units_again = source.units(list(again.values())) if again else UNITS.empty_table()
    refusal = _other_columns(source, earlier, units_again)
    return RetriedInputs(digest, tuple(again), tuple(absent), units_again, refusal)


def _shown(paths_by_change: dict[str, list[str]]) -> str:
    changes = []
    for change, paths in paths_by_change.items():
        if paths:
            changes.append(f"{len(paths):,} {change} ({shortened(paths, PATHS_SHOWN)})")
    return "; ".join(changes)


def _other_columns(source: Source, earlier: Location, units: pa.Table) -> str:
    """Return a sentence if files that are listed again have columns or types that the earlier manifest lacks."""
    schema = manifest.read_schema(earlier)
    wider = source.full_schema(schema, seen_in(units)) if len(units) else None
    if schema is None or wider is None or wider.equals(schema):
        return ""
    names = [field.name for field in wider if field.name not in schema.names or schema.field(field.name) != field]
    return f"files that were put right have other columns than the published rows: {', '.join(names)}"


def take_over_manifest(place: Location, earlier: Location, retry: RetriedInputs) -> np.ndarray:
    """Write the manifest of a retry. Return the new number of each earlier unit; -1 if its file is listed again."""
    numbers, inputs = manifest.read_manifest(earlier, ["unit"])
    if not retry.again and retry.inputs == inputs:
        place.write_bytes(earlier.read_bytes())
        return np.arange(len(numbers))
    units, _ = manifest.read_manifest(earlier)
    stays = pc.invert(pc.is_in(units["path"], pa.array(retry.again, pa.string()))).to_numpy()
    schema, snapshot = manifest.read_schema(earlier), manifest.read_snapshot(earlier)
    with begin_manifest(place) as writer:
        writer.add(units.cast(UNITS).filter(pa.array(stays)))
        writer.add(retry.units.cast(UNITS))
        writer.finish(retry.inputs, schema, snapshot, manifest.read_passed_over(earlier))
    return np.where(stays, np.cumsum(stays) - 1, -1)
