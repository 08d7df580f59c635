"""What unpacks to 1,000 times its size or more costs itself, within a bound of memory."""

from pathlib import Path

import pytest

from tests.bombs import defused
from tests.contracts.sources.adapter import ROWS, Adapter
from tests.contracts.sources.bombs import BOMBS, Bomb, reading
from tests.contracts.sources.suite import SOURCES, promise

CASES = [
    pytest.param(SOURCES.adapters[kind], bomb, id=f"{kind}-{number}")
    for kind, bombs in BOMBS.items()
    for number, bomb in enumerate(bombs)
]


@promise("bomb", "a value of a gigabyte in a small file costs its own rows, and is never held")
def test_bombs_are_tried(leaf: Adapter) -> None:
    assert BOMBS[leaf.kind]


@pytest.mark.slow
@pytest.mark.parametrize(("leaf", "bomb"), CASES)
def test_a_value_of_a_gigabyte_costs_its_own_rows_and_is_never_held(leaf: Adapter, bomb: Bomb, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    whole = leaf.row_ids(leaf.write(folder, "a", leaf.rows(ROWS)), folder)
    bomb.write(folder)
    if bomb.ends_process:  # test_a_file_that_ends_its_reader_costs_itself has what a run does then
        with pytest.raises(AssertionError, match=bomb.words):
            defused(reading, leaf.kind, str(tmp_path / "small"), str(folder))
        return
    outcome = defused(reading, leaf.kind, str(tmp_path / "small"), str(folder), most_bytes=bomb.most_bytes)
    lost = [name for name in whole if name in outcome["bad"]]
    assert set(whole) - set(lost) <= set(outcome["good"])
    assert len(lost) <= (leaf.kind == "sql")
    assert outcome["bad"]
    assert all(bomb.words in reason for reason in outcome["bad"].values()), outcome["bad"]
