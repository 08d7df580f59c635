"""A decision on disk: each row is judged alike, whichever rows are asked for together."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.duplicates import decision
from overnight.tasks.duplicates.places import FAILED, PLACES
from overnight.tasks.storage.location import Location


def places(rows: list[tuple[int, int, int]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(PLACES.names, row, strict=True)) for row in rows], PLACES)


def test_rows_are_judged_by_unit_row_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "ROWS_A_GROUP", 3)
    rng = np.random.default_rng(0)
    every = [(unit, row, place) for unit in range(5) for row in range(20) for place in range(1 + row % 3)]
    gone = [row for row in every if rng.random() < 0.3]
    failed = [(unit, row) for unit, row, place in every if not place and rng.random() < 0.1]
    location = Location(str(tmp_path / "duplicates/0"))
    half = len(gone) // 2
    tables = [places(gone[:half]), places(gone[half:])]
    assert decision.write(location, tables, places([(*row, FAILED) for row in reversed(failed)])) == len(gone)
    for units in ([0, 1, 2, 3, 4], [2], [1, 4]):
        asked = [row for row in every if row[0] in units]
        found = decision.judged(location, *(np.array(column) for column in zip(*asked, strict=True)))
        assert found[0].tolist() == [row in gone for row in asked]
        assert found[1].tolist() == [row[2] == 0 and row[:2] in failed for row in asked]


def test_duplicates_are_counted_over_all_decisions(tmp_path: Path) -> None:
    folder = Location(str(tmp_path / "duplicates"))
    assert decision.count_all(folder) == 0
    for number, rows in enumerate(([(0, 1, 0), (0, 2, 0)], [], [(3, 0, 0)])):
        decision.write(folder / str(number), [places(rows)], places([(9, 9, FAILED)]))
    (tmp_path / "duplicates/3.tmp").write_bytes(b"begun")
    assert decision.count_all(folder) == 3
