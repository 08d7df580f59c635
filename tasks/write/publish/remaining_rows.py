"""The published files that a run replaces because rows of changed or deleted inputs leave them; the other rows stay.

A published row has its unit's path in `row_id`: `path`, `path#7` or `path#7.2`. Only the column `row_id` is read to
decide which files to replace. The remaining rows of these files are staged again, without models. Small files are
replaced too once there are many, so that their number does not grow with each late file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows import blocks
from overnight.tasks.rows.apply import NUMBERED
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.published_rows import PublishedRows, published_rows
from overnight.tasks.state.row_ranges import RANGES
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import DETAILS, KEPT, SOURCE_ROW, Record, write_part
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import ROW_GROUP_BYTES, SMALLEST_FILE
from overnight.tasks.write.sink import Sink

MOST_SMALL_FILES = 8
# The rows that leave each file in this process's latest plan: a start plans to show it, then its flow plans again.
_latest: dict[tuple[Location, str, tuple[str, ...]], dict[str, int]] = {}


@dataclass(frozen=True)
class ReplacedFiles:
    """The published `files` that a run replaces, and the number of published rows that leave them.

    If rows that must leave cannot, the sentence `refusal` explains why.
    """

    files: tuple[str, ...] = ()
    rows_leaving: int = 0
    refusal: str = ""


def files_to_replace(
    run: Run,
    sink: Sink,
    receipt: Mapping[str, Any],
    published: PublishedRows,
    record: Record,
    leaving: Sequence[str],
) -> ReplacedFiles:
    """Return the published files of a receipt with rows of the units at the paths `leaving`, and many small ones.

    `record` has the settled rows of that publish. Only the column `row_id` is read.
    """
    has_counts = published.by_file.keys() == set(receipt["files"]) and bool(receipt["files"])
    refusal = sink.cannot_rewrite(run, record.schema, receipt["files"])
    counts: dict[str, int] = {}
    paths = _live_paths(run, receipt, record)
    if paths.keys() & set(leaving):
        if refusal or not has_counts:
            return ReplacedFiles(refusal=refusal or "its record lacks the rows of each published file")
        key = run.sink, receipt["generation"], tuple(leaving)
        counts = _latest.get(key) or {}
        if not counts:
            counts, refusal = _rows_leaving(run, sink, receipt, list(paths), leaving)
            if refusal:
                return ReplacedFiles(refusal=refusal)
            _latest.clear()
            _latest[key] = counts
    files = [name for name in receipt["files"] if counts.get(name)]
    smallest = SMALLEST_FILE * getattr(sink, "target_file_size", 0)
    small = []
    for name, facts in published.by_file.items():
        if name not in files and facts["bytes"] < smallest:
            small.append(name)
    if has_counts and not refusal and len(small) > MOST_SMALL_FILES:
        files += small
    return ReplacedFiles(tuple(files), sum(counts.values()))


def _live_paths(run: Run, receipt: Mapping[str, Any], record: Record) -> dict[str, None]:
    """Return the paths of the inputs with published rows, each once."""
    manifest = replace(run, generation=receipt["generation"]).manifest
    paths = read_manifest(manifest, ["path"])[0]["path"]
    live = record.ranges.filter(pc.equal(record.ranges["state"], blocks.LIVE))
    units = np.unique(live["unit"].to_numpy())
    return dict.fromkeys(paths.take(pa.array(units)).to_pylist())


def _rows_leaving(
    run: Run, sink: Sink, receipt: Mapping[str, Any], paths: list[str], leaving: Sequence[str]
) -> tuple[dict[str, int], str]:
    """Return the number of rows that leave each published file, and an empty text, or why it is not certain."""
    inputs, own = pa.array(paths, pa.string()), pa.array(leaving, pa.string())
    if path := next(filter(NUMBERED.search, paths), ""):
        return {}, f"the name of the input {path} ends like the row_id of a row"
    counts, rows, has_rows = {}, 0, np.zeros(len(paths), bool)
    for name in receipt["files"]:
        counts[name] = 0
        for table in _pieces(sink.read(run.sink, {**receipt, "files": [name]}, ["row_id"])):
            origins = _paths_of(table["row_id"])
            numbers = pc.index_in(origins, inputs)
            if numbers.null_count:
                stranger = table["row_id"].filter(numbers.is_null())[0]
                return {}, f"the published row {stranger} does not have the name of its input"
            has_rows[numbers.to_numpy()] = True
            counts[name] += pc.sum(pc.is_in(origins, own)).as_py() or 0
            rows += len(table)
    if rows != receipt["rows_out"] or not has_rows.all():
        return {}, f"its files have {rows:,} rows of {int(has_rows.sum()):,} inputs, not those of its receipt"
    return counts, ""


def _paths_of(row_ids: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(row_ids.cast(pa.string()), NUMBERED.pattern, "")


def stage_remaining(
    run: Run,
    sink: Sink,
    receipt: Mapping[str, Any],
    record: Record,
    replaced: ReplacedFiles,
    leaving: Sequence[str],
) -> None:
    """Stage the rows of published files again, in parts of bounded size, without the units at the paths `leaving`.

    Raise `CheckFailed` if the files do not have as many rows as they were published with.
    """
    expected_rows, rows = -replaced.rows_leaving, 0
    for facts in published_rows(run, receipt["generation"], replaced.files).by_file.values():
        expected_rows += facts["rows"]
    schema = pa.schema([column for column in record.schema if column.name not in SOURCE_ROW])
    for number, table in enumerate(_pieces(_remaining(run.sink, sink, receipt, replaced.files, leaving))):
        columns = [column for column in schema if column.name in table.column_names]
        arrays = [pc.cast(table[column.name], column.type) for column in columns]
        part = pa.table(arrays, schema=pa.schema(columns))
        errors, ranges = DETAILS.empty_table(), RANGES.empty_table()
        write_part(run.parts, f"{KEPT}{number:05d}", part, errors, ranges, {}, "zstd", record.left_out)
        rows += len(part)
    if rows != expected_rows:
        raise CheckFailed(
            f"{run.target}: expected {expected_rows:,} rows to stay of the published files to replace, found "
            f"{rows:,}. Nothing was published. Run the whole partition with force."
        )


def _remaining(
    place: Location, sink: Sink, receipt: Mapping[str, Any], files: Sequence[str], leaving: Sequence[str]
) -> Iterator[pa.Table]:
    own = pa.array(leaving, pa.string())
    for name in files:
        for table in sink.read(place, {**receipt, "files": [name]}, None):
            yield table.filter(pc.invert(pc.is_in(_paths_of(table["row_id"]), own)))


def _pieces(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables joined, so that each piece has about `ROW_GROUP_BYTES`."""
    piece: list[pa.Table] = []
    size = 0
    for table in tables:
        is_full = size + table.nbytes > ROW_GROUP_BYTES
        if piece and (is_full or table.schema != piece[0].schema):
            yield pa.concat_tables(piece)
            piece, size = [], 0
        if len(table):
            piece.append(table)
            size += table.nbytes
    if piece:
        yield pa.concat_tables(piece)
