"""Which parts of a file are units, and which rows of a unit are good, bad or lost, by their numbers."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.errors import BROKEN_OFF, RowError
from overnight.tasks.ingest.reading.unit_rows import (
    BROKEN,
    Judged,
    RowRange,
    counted_units,
    judged_rows,
    unit_blocks,
    without_error,
)
from overnight.tasks.rows import blocks
from overnight.tasks.storage.location import File

FILES = [File(name, f"/in/{name}", 9, f"v{name}", None) for name in "abc"]
UNIT = {"unit": 3, "path": "a", "uri": "/in/a", "first_row": 10, "rows": 5, "row_group": 1}
ENDS_EARLY = f"{BROKEN_OFF}: broken"


def test_each_part_with_rows_is_a_unit_and_a_file_that_does_not_open_is_one_row() -> None:
    def parts(file: File) -> list[RowRange]:
        if file.path == "b":
            raise ValueError("broken")
        return [RowRange(0, 4, 0, 40), RowRange(4, 0, 1, 0), RowRange(4, 2, 2, 20)]

    units = counted_units(FILES, parts)
    assert units["unit"].to_pylist() == [0, 1, 2, 3, 4]
    names = ["path", "uri", "size", "version", "first_row", "rows", "row_group"]
    assert [tuple(unit[name] for name in names) for unit in units.to_pylist()[1:4]] == [
        ("a", "/in/a", 20, "va", 4, 2, 2), ("b", "/in/b", 9, "vb", 0, 1, BROKEN), ("c", "/in/c", 40, "vc", 0, 4, 0),
    ]  # fmt: skip
    assert counted_units([], parts).num_rows == 0


def test_a_storage_that_fails_while_files_are_listed_makes_no_unit() -> None:
    def parts(file: File) -> list[RowRange]:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        counted_units(FILES, parts)


def tables(*found: int | Exception | Judged) -> Iterator[pa.Table | Judged]:
    """A table of so many rows, numbered through all; an error is raised."""
    number = 0
    for one in found:
        if isinstance(one, Exception):
            raise one
        count = one if isinstance(one, int) else len(one.data)
        yield pa.table({"x": range(number, number + count)}) if isinstance(one, int) else one
        number += count


def outcome(found: Iterator[pa.Table]) -> tuple[list[int], dict[str, str], list[int]]:
    """The numbers of the good rows, the reasons of the bad ones by name, and the counts of the marks of the end."""
    rows: list[dict[str, Any]] = [row for block in found for row in block.to_pylist()]
    assert {row["__unit"] for row in rows} == {3}
    good = [row for row in rows if row["__state"] == blocks.LIVE]
    assert all(row["row_id"] == f"a#{row['__row']}" for row in good)
    bad = {
        row["row_id"]: row["__error_message"].partition(" (")[0] for row in rows if row["__state"] == blocks.QUARANTINED
    }
    return [row["__row"] for row in good], bad, [row["__row"] for row in rows if row["__state"] == blocks.END]


def one_bad(*places: int) -> Judged:
    return Judged(pa.table({"x": range(4)}), {place: ValueError("odd") for place in places})


FEWER = "expected 5 rows in this part of the file, as it declares, found 2"
COUNTED: dict[str, tuple[list, list[int], dict[str, str]]] = {
    "all rows": ([2, 3], [10, 11, 12, 13, 14], {}),
    "more rows": ([4, 4, ValueError("not read")], [10, 11, 12, 13, 14], {}),
    "fewer rows": ([2], [10, 11], dict.fromkeys(["a#12", "a#13", "a#14"], FEWER)),
    "an end": ([3, ValueError("broken")], [10, 11, 12], dict.fromkeys(["a#13", "a#14"], "broken")),
    "bad rows": ([2, one_bad(0, 2, 3)], [10, 11, 13], dict.fromkeys(["a#12", "a#14"], "odd")),
}


@pytest.mark.parametrize(("found", "good", "bad"), COUNTED.values(), ids=COUNTED)
def test_a_part_has_the_rows_that_it_declares(found: list, good: list[int], bad: dict[str, str]) -> None:
    assert outcome(unit_blocks(UNIT, tables(*found))) == (good, bad, [])


def test_a_file_that_was_broken_when_listed_stays_one_bad_row() -> None:
    unit = UNIT | {"row_group": BROKEN, "first_row": 0, "rows": 1}
    assert outcome(unit_blocks(unit, tables(ValueError("broken")))) == ([], {"a": "broken"}, [])
    [(name, reason)] = outcome(unit_blocks(unit, tables(1)))[1].items()
    assert (name, "with force lists it again" in reason) == ("a", True)


UNCOUNTED: dict[str, tuple[int | None, list, list[int], dict[str, str], list[int]]] = {
    "all rows": (None, [2, 1], [0, 1, 2], {}, [3]),
    "no row": (None, [], [], {}, [0]),
    "an end": (None, [2, ValueError("broken")], [0, 1], {"a#2": ENDS_EARLY}, [3]),
    "no file": (None, [ValueError("broken")], [], {"a": "broken"}, [1]),
    "bad rows": (None, [one_bad(1)], [0, 2, 3], {"a#1": "odd"}, [4]),
    "a sample": (3, [2, 2, ValueError("not read")], [0, 1, 2], {}, []),
    "a sample of a bad row": (3, [one_bad(1, 3)], [0, 2], {"a#1": "odd"}, []),
    "a sample beyond the end": (3, [1], [0], dict.fromkeys(["a#1", "a#2"], "the file ends before this row"), []),
    "a sample that ends": (3, [1, ValueError("broken")], [0], dict.fromkeys(["a#1", "a#2"], ENDS_EARLY), []),
}


@pytest.mark.parametrize(("rows", "found", "good", "bad", "ends"), UNCOUNTED.values(), ids=UNCOUNTED)
def test_rows_that_nobody_counted_are_numbered_and_counted_at_the_end(
    rows: int | None, found: list, good: list[int], bad: dict[str, str], ends: list[int]
) -> None:
    unit = UNIT | {"rows": rows, "first_row": 0, "row_group": None}
    assert outcome(unit_blocks(unit, tables(*found))) == (good, bad, ends)


@pytest.mark.parametrize("row_group", [1, None])
def test_a_storage_that_fails_while_rows_are_read_costs_none(row_group: int | None) -> None:
    with pytest.raises(ConnectionResetError):
        list(unit_blocks(UNIT | {"row_group": row_group}, tables(1, ConnectionResetError())))


def test_an_item_without_a_row_is_an_empty_row_with_an_error_and_other_errors_end_the_read() -> None:
    damage = RowError("damaged")
    rows, errors = judged_rows([{"x": 1}, damage, {"x": 3}], without_error)
    assert (rows, errors) == ([{"x": 1}, {}, {"x": 3}], {1: damage})
    with pytest.raises(ZeroDivisionError):
        judged_rows([0], lambda item: {"x": 1 / item})
