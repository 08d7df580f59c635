"""The record that a publish leaves, so that a later run may keep its rows and run only the others.

`generations/<generation>/settled/` of the published generation has two files:

    0-published.part   a staged part without rows; its footer has the ranges of source rows that the publish settled
    rows.json          the number of the published rows, their columns and statistics, also of each file
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.state.staged_parts import DETAILS, Record
from overnight.tasks.storage.location import Location

ROWS = "rows.json"
PART = "0-published"  # sorts before all attempts, so it wins over their parts


@dataclass(frozen=True)
class PublishedRows:
    """A description of published rows that a later publish keeps."""

    files: tuple[str, ...]  # paths below the sink
    rows: int
    schema: Mapping[str, str]  # column -> the name of its Arrow type
    columns: dict[str, dict[str, Any]]  # column -> its statistics (`write/checks/column_statistics.py`)
    # path -> the rows, the bytes and the columns of a file; empty if the sink has other files than it merged
    by_file: Mapping[str, dict[str, Any]] = field(default_factory=dict)


def leave_record(
    run: Run, staged: pa.Schema, merged: pa.Table, published: PublishedRows, left_out: Sequence[str]
) -> None:
    """Write the record with which a later run can keep the rows of a publish."""
    folder = _folder(run, run.generation)
    _write_part(folder, staged, merged.select(row_ranges.RANGES.names), left_out)
    rows = {"rows": published.rows, "schema": dict(published.schema), "columns": published.columns}
    rows["files"] = dict(published.by_file)
    write_json(folder / ROWS, rows)


def settled_record(run: Run, generation: str) -> Record | None:
    """Return which source rows a published generation settled, as the footer of a part; None without such a record."""
    return next(iter(staged_parts.read_records(_folder(run, generation))), None)


def published_rows(run: Run, generation: str, files: Sequence[str]) -> PublishedRows:
    """Return the description of the rows that a generation published. `files` are the files of its receipt."""
    file = _folder(run, generation) / ROWS
    record = read_json(file)
    if record is None:
        raise FileNotFoundError(file)
    by_file = {name: facts for name, facts in record.get("files", {}).items() if name in files}
    return PublishedRows(tuple(files), record["rows"], record["schema"], record["columns"], by_file)


def copy_record(run: Run, generation: str) -> None:
    """Copy the manifest of another generation, and the record that its publish left, to the generation of `run`."""
    manifest = run.ledger / "generations" / generation / "manifest"
    if manifest.exists():
        manifest.copy_to(run.manifest)
    folder = _folder(run, generation)
    for name in folder.names():
        (folder / name).copy_to(_folder(run, run.generation) / name)


def without_quarantined(ranges: pa.Table) -> pa.Table:
    """Return the ranges without those of quarantined rows, and without `END` of their units.

    So the rows of these units are counted again, because damage may have ended them early.
    """
    states, units = row_ranges.columns_of(ranges, "state", "unit")
    is_quarantine = states == blocks.QUARANTINED
    is_end = (states == blocks.END) & np.isin(units, units[is_quarantine])
    return ranges.filter(pa.array(~(is_quarantine | is_end)))


def take_over(run: Run, record: Record, ranges: pa.Table) -> None:
    """Write an empty part that marks the rows in `ranges` as settled, so that `run` reads only the others."""
    _write_part(run.parts, record.schema, ranges, record.left_out)


def _write_part(folder: Location, schema: pa.Schema, ranges: pa.Table, left_out: Sequence[str]) -> None:
    staged_parts.write_part(folder, PART, schema.empty_table(), DETAILS.empty_table(), ranges, {}, "zstd", left_out)


def _folder(run: Run, generation: str) -> Location:
    return run.ledger / "generations" / generation / "settled"
