"""The inputs of a retry of quarantined rows, which takes over the manifest of the earlier run.

A file that a user repaired is listed and read again as a whole. All other inputs must be as they were: a published row
never belongs to another version than the manifest has.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import shortened
from overnight.tasks.ingest.listing.list_files import list_inputs, stream_inputs
from overnight.tasks.ingest.reading.unit_rows import BROKEN
from overnight.tasks.ingest.source import Source, seen_in
from overnight.tasks.rows import blocks
from overnight.tasks.state import manifest
from overnight.tasks.state.manifest import UNITS, begin_manifest
from overnight.tasks.storage.location import File, Location

PATHS_SHOWN = 3


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
    if (digest := manifest.digest(stream_inputs(source, partition))) != inputs:  # in memory only if an input changed
        files = {file.path: file for file in list_inputs(source, partition)}
        digest = manifest.digest(files.values())
        earlier_files, _ = manifest.read_manifest(earlier, ["path", "version"])
        paths = earlier_files["path"]
        repairable = set(paths.take(pa.array(failures)).to_pylist())
        repairable -= set(paths.take(pa.array(successes)).to_pylist())
        versions = dict(zip(paths.to_pylist(), earlier_files["version"].to_pylist(), strict=True))
        new = [path for path in files if path not in versions and len(source.units([files[path]]))]
        other_versions = [path for path, file in files.items() if path in versions and file.version != versions[path]]
        absent = sorted(versions.keys() - files.keys())
        unlike = {
            "new": new,
            "changed": sorted(set(other_versions) - repairable),
            "gone": sorted(set(absent) - repairable),
        }
        if any(unlike.values()):
            return RetriedInputs(refusal=f"inputs of rows that are not quarantined changed: {_shown(unlike)}")
        again = {path: file for path, file in again.items() if path in files}
        again |= {path: files[path] for path in other_versions}
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
