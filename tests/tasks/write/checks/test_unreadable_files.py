"""What a file of many rows costs that cannot be read: the rows that it is likely to have had."""

from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.state.staged_parts import QUARANTINE
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.run_checks import count_failures
from overnight.tasks.write.checks.settings import Checks
from overnight.tasks.write.checks.unreadable_files import told, unreadable

HERE = Location("/nowhere")


def quarantine(*rows: tuple[str, str, str]) -> pa.Table:
    names = ("row_id", "stage", "error_message")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=QUARANTINE)


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Any:
    def of(sizes: dict[str, int], rows: list[int | None]) -> pa.Table:
        table = pa.table({"path": list(sizes), "size": list(sizes.values()), "rows": pa.array(rows, pa.int64())})
        monkeypatch.setattr(
            "overnight.tasks.write.checks.unreadable_files.read_manifest",
            lambda place, names: (table.select(names), ""),
        )
        return table

    return of


@pytest.mark.parametrize("counts_of_others", [[None, None, None], [1000, 1000, 1]])
def test_an_unreadable_file_counts_as_the_rows_that_its_bytes_stand_for(units: Any, counts_of_others: list) -> None:
    counted = units({"a": 5000, "b": 5000, "c": 4000}, counts_of_others)
    lost = unreadable(quarantine(("c", "ingest", "expected Parquet, found none")), counted, HERE, 2001)
    assert lost == {"files": 1, "of_files": 3, "bytes": 4000, "rows_counted": 1, "rows_about": 800}
    receipt = {"rows_in": 2001, "rows_out": 2000, "rows_filtered": 0, "rows_quarantined": 1, "unreadable": lost}
    [said] = count_failures(Checks(), receipt)
    assert said == (
        "checks.max_quarantined: 800 of 2800 rows are quarantined, about 800 rows in 1 unreadable file among them, "
        "28 are allowed (0.01)."
    )
    assert not list(count_failures(Checks(max_quarantined=0.5), receipt))
    cut_short = {"files": 1, "of_files": 3, "bytes": 4, "rows_counted": 1, "rows_about": 1}
    [said] = count_failures(Checks(), receipt | {"unreadable": cut_short})
    assert said == "checks.max_quarantined: 1 of 3 files cannot be read, 0 are allowed (0.01)."


def test_a_file_that_breaks_off_counts_as_what_lies_behind(units: Any) -> None:
    counted = units({"a": 5000, "b": 5000}, [None, None])
    broken_off = quarantine(("b#400", "ingest", "the file cannot be read from here on: invalid block"))
    assert (unreadable(broken_off, counted, HERE, 1401) or {})["rows_about"] == 600


@pytest.mark.parametrize(
    ("rows", "errors"),
    [
        ([None, None], [("a#3", "ingest", "expected int64, found x")]),
        ([None, None], [("a", "preprocess", "expected an image")]),
        ([None, None], []),
        ([1, 1], [("b", "ingest", "gone")]),  # a file that is one row
    ],
)
def test_rows_that_were_counted_are_no_unreadable_files(units: Any, rows: list, errors: list) -> None:
    assert unreadable(quarantine(*errors), units({"a": 5000, "b": 90_000}, rows), HERE, 2000) is None


def test_where_every_file_is_unreadable_nothing_is_made_up(units: Any) -> None:
    counted = units({"a": 5000, "b": 5000}, [None, None])
    found = unreadable(quarantine(("a", "ingest", ""), ("b", "ingest", "")), counted, HERE, 2)
    assert found == {"files": 2, "of_files": 2, "bytes": 10_000, "rows_counted": 2, "rows_about": 2}


def test_one_row_and_one_file_are_told_in_the_singular() -> None:
    assert told({"rows_about": 1, "files": 1}) == "about 1 row in 1 unreadable file"
    assert told({"rows_about": 1200, "files": 2}) == "about 1,200 rows in 2 unreadable files"
