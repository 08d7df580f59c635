"""The inputs of a retry: those of the earlier run, with the new versions of the files whose every row is quarantined.

A file that a user repaired is listed and read again as a whole. So is a file that could not be opened when it was
listed. All other inputs must be as they were: a published row never belongs to another version than the manifest has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.ingest.listing.list_files import list_inputs, stream_inputs
from overnight.tasks.ingest.reading.unit_rows import BROKEN
from overnight.tasks.ingest.source import Source, seen_in
from overnight.tasks.rows import blocks
from overnight.tasks.state import manifest
from overnight.tasks.state.manifest import UNITS, begin_manifest
from overnight.tasks.storage.location import File, Location

SHOWN = 3


@dataclass(frozen=True)
class RetriedInputs:
    """What a retry of the quarantined rows reads. `inputs` is the digest of the current listing.

    `again` are the paths of files that are listed again, and `units` are the new units of these files. `gone` are paths
    of files that no longer exist; their rows stay quarantined. `refusal` is a sentence that explains why no retry is
    possible, or is empty.
    """

    inputs: str = ""
    again: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    units: pa.Table = field(default_factory=UNITS.empty_table)
    refusal: str = ""


def look_again(source: Source, partition: str, earlier: Location, ranges: pa.Table) -> RetriedInputs:
    """List the inputs, compare them with the manifest `earlier`, and return what a retry of the quarantined rows reads.

    The result has a `refusal` if inputs changed whose rows are not all quarantined. Memory holds the paths of all
    inputs only if an input changed.

    Args:
        ranges: The settled ranges of rows of the earlier run, with the columns of `row_ranges.RANGES`.

    Raises:
        InputError: The inputs cannot be listed, or there are none and the source's `allow_empty` is False.
        ServiceUnavailable: The inputs cannot be listed now, but a later attempt may succeed.
    """
    groups, inputs = manifest.read_manifest(earlier, ["row_group"])
    states, units = ranges["state"].to_numpy(), ranges["unit"].to_numpy()
    failed = np.unique(units[states == blocks.QUARANTINED])
    others = np.unique(units[(states == blocks.LIVE) | (states == blocks.FILTERED)])
    broken = failed[pc.fill_null(groups["row_group"], 0).to_numpy()[failed] == BROKEN]
    unopened = {unit["path"]: unit for unit in manifest.read_units(earlier, broken).to_pylist()}
    again = {p: File(p, unit["uri"], unit["size"], unit["version"]) for p, unit in unopened.items()}
    gone: list[str] = []
    if (current := manifest.digest(stream_inputs(source, partition))) != inputs:
        files = list_inputs(source, partition)
        current = manifest.digest(files)
        known, _ = manifest.read_manifest(earlier, ["path", "version"])
        lost = set(known["path"].take(pa.array(failed)).to_pylist())
        lost -= set(known["path"].take(pa.array(others)).to_pylist())
        then = dict(zip(known["path"].to_pylist(), known["version"].to_pylist(), strict=True))
        now = {file.path: file for file in files}
        new = [path for path in now if path not in then and len(source.units([now[path]]))]
        changed = [path for path, file in now.items() if path in then and file.version != then[path]]
        gone = [path for path in then if path not in now]
        if why := list(_refused(new, [p for p in changed if p not in lost], [p for p in gone if p not in lost])):
            return RetriedInputs(refusal=f"inputs of rows that are not quarantined changed: {'; '.join(why)}")
        again = {path: file for path, file in again.items() if path in now} | {path: now[path] for path in changed}
    units_again = source.units(list(again.values())) if again else UNITS.empty_table()
    refusal = _other_columns(source, earlier, units_again)
    return RetriedInputs(current, tuple(again), tuple(gone), units_again, refusal)


def _refused(new: list[str], changed: list[str], gone: list[str]) -> Iterator[str]:
    for what, paths in (("new", new), ("changed", changed), ("gone", gone)):
        if paths:
            more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
            yield f"{len(paths):,} {what} ({', '.join(paths[:SHOWN])}{more})"


def _other_columns(source: Source, earlier: Location, units: pa.Table) -> str:
    """Return a sentence if files that are listed again have columns or types that the earlier manifest lacks."""
    schema = manifest.read_schema(earlier)
    if not len(units):
        return ""
    wider = source.full_schema(schema, seen_in(units))
    if schema is None or wider is None or wider.equals(schema):
        return ""
    names = [field.name for field in wider if field.name not in schema.names or schema.field(field.name) != field]
    return f"files that were put right have other columns than the published rows: {', '.join(names)}"


def take_over_manifest(place: Location, earlier: Location, found: RetriedInputs) -> np.ndarray:
    """Write the manifest of a retry to `place`. Return the new number (int64) of each unit of the manifest `earlier`.

    The number is -1 for a unit whose file is listed again. The new units of these files come last in the manifest.
    `found` is the result of `look_again`.
    """
    inputs = manifest.read_manifest(earlier, [])[1]
    if not found.again and found.inputs == inputs:
        place.write_bytes(earlier.read_bytes())
        return np.arange(len(manifest.read_manifest(earlier, ["unit"])[0]))
    units, _ = manifest.read_manifest(earlier)
    stays = pc.invert(pc.is_in(units["path"], pa.array(found.again, pa.string()))).to_numpy()
    schema, snapshot = manifest.read_schema(earlier), manifest.read_snapshot(earlier)
    with begin_manifest(place) as written:
        written.add(units.cast(UNITS).filter(pa.array(stays)))
        written.add(found.units.cast(UNITS))
        written.finish(found.inputs, schema, snapshot, manifest.read_passed_over(earlier))
    return np.where(stays, np.cumsum(stays) - 1, -1)
