"""What a run that keeps rows reads: the earlier manifest, with the files that are new, changed or put right."""

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.ingest.listing.continued_inputs import ContinuedInputs, look_again, take_over_manifest
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.rows import blocks
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.row_ranges import RANGES
from overnight.tasks.storage.location import Location


def write(place: Path, name: str, rows: int, **more: list[int]) -> None:
    pq.write_table(pa.table({"x": range(rows), **more}), place / name, row_group_size=3)


class Place:
    """Three files: `a` (units 0 and 1) of 5 rows, a broken one (unit 2), `c` (units 3 and 4) of 5 rows."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.manifest, self.new = folder / "in", Location(f"{folder}/manifest"), Location(f"{folder}/new")
        self.inputs.mkdir()
        write(self.inputs, "a.parquet", 5)
        (self.inputs / "b.parquet").write_bytes(b"broken")
        write(self.inputs, "c.parquet", 5)
        self.source = Parquet(path=str(self.inputs))
        take_manifest(self.manifest, self.source, "all")

    def look(self, *quarantined: tuple[int, int, int], is_retry: bool = True) -> ContinuedInputs:
        """Look again after a publish that quarantined these ranges (unit, start, stop) and the broken file's row."""
        failed = {*quarantined, (2, 0, 1)}
        known = [(0, 0, 3), (1, 3, 5), (2, 0, 1), (3, 0, 3), (4, 3, 5)]
        ranges = [(*one, blocks.QUARANTINED) for one in failed]
        ranges += [(*one, blocks.LIVE) for one in known if one not in failed]
        table = pa.Table.from_pylist([dict(zip(RANGES.names, one, strict=True)) for one in ranges], RANGES)
        return look_again(self.source, "all", self.manifest, table, is_retry)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_manifest_stays_while_no_file_changed_and_a_file_that_never_opened_is_listed_again(place: Place) -> None:
    found = place.look((3, 0, 3))
    assert (found.refusal, found.again, found.changes) == ("", ("b.parquet",), {})
    assert take_over_manifest(place.new, place.manifest, found).tolist() == [0, 1, -1, 2, 3]
    units, inputs = read_manifest(place.new)
    assert inputs == read_manifest(place.manifest)[1]
    assert units["path"].to_pylist() == ["a.parquet", "a.parquet", "c.parquet", "c.parquet", "b.parquet"]


def test_a_file_that_was_put_right_is_listed_again_as_a_whole(place: Place) -> None:
    write(place.inputs, "b.parquet", 7)
    write(place.inputs, "c.parquet", 4)  # of which no row was published
    found = place.look((3, 0, 3), (4, 3, 5))
    assert (found.refusal, set(found.again)) == ("", {"b.parquet", "c.parquet"})
    assert take_over_manifest(place.new, place.manifest, found).tolist() == [0, 1, -1, -1, -1]
    units, inputs = read_manifest(place.new)
    assert inputs == found.inputs != read_manifest(place.manifest)[1]
    rows = dict.fromkeys(units["path"].to_pylist(), 0)
    for unit in units.to_pylist():
        rows[unit["path"]] += unit["rows"]
    assert rows == {"a.parquet": 5, "b.parquet": 7, "c.parquet": 4}
    assert units["unit"].to_pylist() == list(range(len(units)))


def test_a_quarantined_file_that_is_gone_stays_in_the_manifest(place: Place) -> None:
    (place.inputs / "b.parquet").unlink()
    found = place.look()
    assert (found.refusal, found.again, found.changes["gone"]) == ("", (), ("b.parquet",))
    numbers = take_over_manifest(place.new, place.manifest, found)
    assert numbers.tolist() == [0, 1, 4, 2, 3]
    assert read_manifest(place.new)[1] == found.inputs


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda place: write(place, "d.parquet", 1), r"1 new \(d.parquet\)"),
        (lambda place: write(place, "a.parquet", 6), r"1 changed \(a.parquet\)"),
        (lambda place: (place / "a.parquet").unlink(), r"1 gone \(a.parquet\)"),
        (lambda place: write(place, "c.parquet", 6), r"1 changed \(c.parquet\)"),
        (lambda place: write(place, "b.parquet", 2, y=[1, 2]), "other columns than the published rows: y"),
    ],
)
def test_changed_inputs_of_other_rows_and_other_columns_are_refused_by_name(
    place: Place, change: Callable[[Path], None], said: str
) -> None:
    """Of `c` some rows are quarantined, and the others are published."""
    change(place.inputs)
    assert re.search(said, place.look((4, 3, 5)).refusal)


def test_a_new_file_without_rows_changes_nothing(place: Place) -> None:
    write(place.inputs, "d.parquet", 0)
    assert place.look((3, 0, 3)).refusal == ""


def test_late_files_give_the_manifest_that_a_first_run_would_take(place: Place, tmp_path: Path) -> None:
    write(place.inputs, "a.parquet", 4)
    (place.inputs / "c.parquet").unlink()
    write(place.inputs, "aa.parquet", 7)
    found = place.look(is_retry=False)
    assert str(found) == "inputs changed: 1 new (aa.parquet); 1 changed (a.parquet); 1 gone (c.parquet)"
    assert set(found.leaving) == {"a.parquet", "b.parquet", "c.parquet"}  # b never opened
    assert take_over_manifest(place.new, place.manifest, found).tolist() == [-1] * 5
    take_manifest(Location(f"{tmp_path}/first"), place.source, "all")
    first, digest = read_manifest(Location(f"{tmp_path}/first"))
    assert read_manifest(place.new) == (first, digest)


def test_units_that_stay_are_numbered_in_the_order_of_the_listing(place: Place) -> None:
    write(place.inputs, "b.parquet", 2)
    write(place.inputs, "0.parquet", 1)
    found = place.look(is_retry=False)
    assert take_over_manifest(place.new, place.manifest, found).tolist() == [1, 2, -1, 4, 5]


def test_new_files_with_other_columns_than_the_published_rows_are_refused(place: Place) -> None:
    write(place.inputs, "0.parquet", 1, y=[1])
    assert "other columns than the published rows: y" in place.look(is_retry=False).refusal


def test_a_type_that_the_first_rows_no_longer_show_is_refused(tmp_path: Path) -> None:
    """The first files decide the types of CSV."""
    for name, value in (("a", "1"), ("b", "2")):
        (tmp_path / f"{name}.csv").write_text(f"x\n{value}\n")
    source, earlier = Csv(path=str(tmp_path)), Location(f"{tmp_path}/manifest")
    take_manifest(earlier, source, "all")
    ranges = pa.Table.from_pylist([{"unit": n, "start": 0, "stop": 1, "state": blocks.LIVE} for n in (0, 1)], RANGES)
    (tmp_path / "a.csv").write_text("x\n3\n")
    assert look_again(source, "all", earlier, ranges, False).refusal == ""
    (tmp_path / "a.csv").write_text("x\nword\n")
    assert "other columns than the published rows: x" in look_again(source, "all", earlier, ranges, False).refusal
