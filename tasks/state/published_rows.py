"""The record that a publish with quarantined rows leaves, so that these rows alone may run again later.

`generations/<generation>/settled/` of the published generation has two files:

    0-published.part   a staged part without rows; its footer has the ranges of source rows that the publish settled
    rows.json          the number of the published rows, the names and types of their columns, and their statistics

A retry is a generation of its own. It begins with a copy of that part, whose ranges lack the quarantined rows. So the
retry reads only the quarantined rows, as a resumed run would. Its publish keeps the published files and adds new ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.state.staged_parts import DETAILS, Record
from overnight.tasks.storage.location import Location

ROWS = "rows.json"
PART = "0-published"  # sorts before all attempts, so it wins over parts of the retry


@dataclass(frozen=True)
class PublishedRows:
    """A description of published rows that a later publish keeps.

    `files` are paths below the sink. `rows` is the number of the rows. `schema` maps each column to the name of its
    Arrow type, and `columns` to its statistics (`write/checks/column_statistics.py`).
    """

    files: tuple[str, ...]
    rows: int
    schema: Mapping[str, str]
    columns: dict[str, dict[str, Any]]


def leave_record(
    run: Run, staged: pa.Schema, merged: pa.Table, published: PublishedRows, left_out: Sequence[str]
) -> None:
    """Write the record with which a later run can retry only the quarantined rows of a publish.

    `staged` has the columns of the staged rows. `merged` has the ranges of the settled source rows
    (`row_ranges.merge`). `left_out` names the columns that are not published.
    """
    place = _place(run, run.generation)
    _write_part(place, staged, merged.select(row_ranges.RANGES.names), left_out)
    known = {"rows": published.rows, "schema": dict(published.schema), "columns": published.columns}
    write_json(place / ROWS, known)


def settled_record(run: Run, generation: str) -> Record | None:
    """Return which source rows a published generation settled, as the footer of a part without rows.

    Return None if the publish left no such record.
    """
    return next(iter(staged_parts.read_records(_place(run, generation))), None)


def published_rows(run: Run, generation: str, files: Sequence[str]) -> PublishedRows:
    """Return the description of the rows that a generation published. `files` are the files of its receipt.

    Raise `FileNotFoundError` if the publish left no record.
    """
    known = read_json(_place(run, generation) / ROWS)
    if known is None:
        raise FileNotFoundError(_place(run, generation) / ROWS)
    return PublishedRows(tuple(files), known["rows"], known["schema"], known["columns"])


def without_quarantined(ranges: pa.Table) -> pa.Table:
    """Return the ranges (schema `row_ranges.RANGES`) without those of quarantined rows.

    A unit with quarantined rows also loses its range of state `END`, which has the unit's number of rows. So its rows
    are counted again, because damage may have ended it early.
    """
    states, units = ranges["state"].to_numpy(), ranges["unit"].to_numpy()
    quarantined = np.unique(units[states == blocks.QUARANTINED])
    is_end = states == blocks.END
    kept = np.where(is_end, ~np.isin(units, quarantined), states != blocks.QUARANTINED)
    return ranges.filter(pa.array(kept))


def take_over(run: Run, record: Record, ranges: pa.Table) -> None:
    """Write an empty part that marks the rows in `ranges` as settled, so that the retry `run` reads only the others.

    `record` is what `settled_record` returned for the published generation. The part gets its columns, and its names of
    columns that are not published. `ranges` has schema `row_ranges.RANGES`.
    """
    _write_part(run.parts, record.schema, ranges, record.left_out)


def _write_part(place: Location, schema: pa.Schema, ranges: pa.Table, left_out: Sequence[str]) -> None:
    staged_parts.write_part(place, PART, schema.empty_table(), DETAILS.empty_table(), ranges, {}, "zstd", left_out)


def _place(run: Run, generation: str) -> Location:
    return run.ledger / "generations" / generation / "settled"
