"""The inputs of a run that keeps published rows: the manifest of the earlier run, in which some files are listed again.

A published row never belongs to another version of a file than the manifest has. So a file in another version is read
as a whole, and its former rows leave.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import shortened
from overnight.tasks.ingest.listing.list_files import StableListing, lacking_inputs, list_inputs, stream_inputs
from overnight.tasks.ingest.listing.take_manifest import FIRST_UNITS
from overnight.tasks.ingest.reading.unit_rows import BROKEN
from overnight.tasks.ingest.source import FileSource, Source, seen_in
from overnight.tasks.rows import blocks
from overnight.tasks.state import manifest
from overnight.tasks.state.manifest import UNITS, begin_manifest
from overnight.tasks.storage.location import File, Location
from overnight.tasks.storage.skipped_files import counting

PATHS_SHOWN = 3
CHANGES = ("new", "changed", "gone")


@dataclass(frozen=True)
class ContinuedInputs:
    """What a run that keeps published rows reads. `inputs` is the digest of the current listing.

    `changes` has the paths of files that are new, changed or gone since the earlier run, and `again` the paths that are
    listed again: the changed ones, and files that could not be opened. `units` are the units of the new files and those
    in `again`. If the rows of the others cannot stay, the sentence `refusal` explains why.
    """

    inputs: str = ""
    again: tuple[str, ...] = ()
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: pa.Table = field(default_factory=UNITS.empty_table)
    listed: pa.Array | None = None  # all paths in the order of the listing; None if the inputs are unchanged
    passed_over: Mapping[str, Any] = field(default_factory=dict)
    gone_stays: bool = False  # files that are gone stay in the manifest, and their rows in the quarantine
    refusal: str = ""

    @property
    def leaving(self) -> tuple[str, ...]:
        """Return the paths of files whose units leave the earlier manifest."""
        return (*self.again, *(() if self.gone_stays else self.changes.get("gone", ())))

    def __str__(self) -> str:
        return f"inputs changed: {_shown(self.changes)}" if any(self.changes.values()) else "inputs unchanged"


def look_again(source: Source, partition: str, earlier: Location, ranges: pa.Table, is_retry: bool) -> ContinuedInputs:
    """List the inputs, and compare them with the manifest `earlier`. `ranges` are the settled rows of that run.

    If `is_retry`, refuse changes except those of files whose every row is quarantined, or could not be opened.
    """
    groups, inputs = manifest.read_manifest(earlier, ["row_group"])
    states, units = ranges["state"].to_numpy(), ranges["unit"].to_numpy()
    failures = np.unique(units[states == blocks.QUARANTINED])
    successes = np.unique(units[(states == blocks.LIVE) | (states == blocks.FILTERED)])
    broken = failures[pc.fill_null(groups["row_group"], 0).to_numpy()[failures] == BROKEN]
    again: dict[str, File] = {}
    for unit in manifest.read_units(earlier, broken).to_pylist():
        again[unit["path"]] = File(unit["path"], unit["uri"], unit["size"], unit["version"])
    if is_retry and (digest := manifest.digest(stream_inputs(source, partition))) == inputs:
        return _described(source, partition, earlier, ContinuedInputs(digest, tuple(again)), again.values())
    if not is_retry and (refusal := _cannot_compare(source, partition)):
        return ContinuedInputs(refusal=refusal)
    with counting() as skips:  # in memory only because an input changed
        files = {file.path: file for file in list_inputs(source, partition)}
    paths = manifest.read_manifest(earlier, ["path", "version"])[0]
    versions = dict(zip(paths["path"].to_pylist(), paths["version"].to_pylist(), strict=True))
    new = [path for path in files if path not in versions]
    other_versions = []
    for path, file in files.items():
        if versions.get(path, file.version) != file.version:
            other_versions.append(path)
    absent = sorted(versions.keys() - files.keys())
    changes = {"new": tuple(new), "changed": tuple(other_versions), "gone": tuple(absent)}
    if is_retry:
        repairable = set(paths["path"].take(pa.array(failures)).to_pylist())
        repairable -= set(paths["path"].take(pa.array(successes)).to_pylist())
        with_rows = [path for path in new if len(source.units([files[path]]))]
        unlike = {"new": with_rows, **{name: sorted(set(changes[name]) - repairable) for name in CHANGES[1:]}}
        if any(unlike.values()):
            return ContinuedInputs(refusal=f"inputs of rows that are not quarantined changed: {_shown(unlike)}")
    elif not any(changes.values()) or not all(file.version for file in files.values()):
        return ContinuedInputs(refusal="the listing does not show which inputs changed")
    again = {path: file for path, file in again.items() if path in files}
    again |= {path: files[path] for path in other_versions}
    inputs_to_read = dict(again)
    if not is_retry:
        inputs_to_read |= {path: files[path] for path in new}
        inputs_to_read = {path: file for path, file in files.items() if path in inputs_to_read}
    inputs_now = ContinuedInputs(
        manifest.digest(files.values()),
        tuple(again),
        changes,
        listed=pa.array(files, pa.string()),
        passed_over=skips.found,
        gone_stays=is_retry,
    )
    return _described(source, partition, earlier, inputs_now, inputs_to_read.values())


def _cannot_compare(source: Source, partition: str) -> str:
    """Return why changed inputs cannot be compared file by file yet, or at all; an empty text if they can."""
    if source.snapshot(partition):
        return f"source.kind: {source.kind} reads one version of a table as a whole"
    if isinstance(source, FileSource) and source.wait_for:
        sentence = lacking_inputs(source, source.wait_for, partition, StableListing())
        return f"its inputs are still arriving: {sentence}" if sentence else ""
    return ""


def _described(
    source: Source, partition: str, earlier: Location, inputs: ContinuedInputs, files: Iterable[File]
) -> ContinuedInputs:
    """Return `inputs` with the units of `files`, and a refusal if these have other columns than the earlier run."""
    files = list(files)
    units = source.units(files) if files else UNITS.empty_table()
    inputs = replace(inputs, units=units)
    return replace(inputs, refusal=_other_columns(source, partition, earlier, inputs))


def _shown(paths_by_change: Mapping[str, Iterable[str]]) -> str:
    changes = []
    for change, paths in paths_by_change.items():
        if names := list(paths):
            changes.append(f"{len(names):,} {change} ({shortened(names, PATHS_SHOWN)})")
    return "; ".join(changes)


def _other_columns(source: Source, partition: str, earlier: Location, inputs: ContinuedInputs) -> str:
    """Return a sentence if the inputs now have columns or types that the earlier manifest lacks."""
    schema, units = manifest.read_schema(earlier), inputs.units
    if schema is None or not len(units):
        return ""
    schemas = [source.full_schema(schema, seen_in(units))]
    if inputs.listed is not None:
        first, _ = _whole(manifest.read_manifest(earlier)[0], inputs)
        schemas.append(source.full_schema(source.common_schema(first[:FIRST_UNITS], partition), seen_in(units)))
    names: dict[str, None] = {}
    for column in itertools.chain.from_iterable(filter(None, schemas)):
        if column.name not in schema.names or not schema.field(column.name).equals(column):
            names[column.name] = None
    return f"the files have other columns than the published rows: {', '.join(names)}" if names else ""


def take_over_manifest(place: Location, earlier: Location, inputs: ContinuedInputs) -> np.ndarray:
    """Write the manifest of a run that keeps rows. Return the new number of each earlier unit; -1 if it leaves."""
    numbers, digest = manifest.read_manifest(earlier, ["unit"])
    if not inputs.again and inputs.inputs == digest:
        place.write_bytes(earlier.read_bytes())
        return np.arange(len(numbers))
    units, numbers = _whole(manifest.read_manifest(earlier)[0], inputs)
    schema, snapshot = manifest.read_schema(earlier), manifest.read_snapshot(earlier)
    passed_over = manifest.read_passed_over(earlier) if inputs.listed is None else inputs.passed_over
    with begin_manifest(place) as writer:
        writer.add(units)
        writer.finish(inputs.inputs, schema, snapshot, passed_over)
    return numbers


def _whole(earlier: pa.Table, inputs: ContinuedInputs) -> tuple[pa.Table, np.ndarray]:
    """Return all units of a manifest in the order of the listing, and the new number of each earlier unit, or -1."""
    stays = pc.invert(pc.is_in(earlier["path"], pa.array(inputs.leaving, pa.string()))).to_numpy()
    units = pa.concat_tables([earlier.cast(UNITS).filter(pa.array(stays)), inputs.units.cast(UNITS)])
    order = np.arange(len(units))
    if inputs.listed is not None:
        ranks = pc.fill_null(pc.index_in(units["path"], inputs.listed), len(inputs.listed)).to_numpy()
        order = np.argsort(ranks, kind="stable")
    positions = np.empty(len(units), np.int64)
    positions[order] = np.arange(len(units))
    numbers = np.full(len(earlier), -1)
    numbers[stays] = positions[: int(stays.sum())]
    return units.take(pa.array(order)), numbers
