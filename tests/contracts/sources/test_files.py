"""What files cost that are not as they should be, and what their names and folders do."""

import os
from pathlib import Path

import pytest

from overnight.tasks.storage.skipped_files import counting
from tests.contracts.sources.adapter import ROWS, Adapter, Damage
from tests.contracts.sources.reading import lines, listed, read_all
from tests.contracts.sources.suite import SOURCES, promise

DAMAGES = [
    pytest.param(leaf, damage, id=f"{kind}-{name}")
    for kind, leaf in SOURCES.adapters.items()
    for name, damage in leaf.damages.items()
]
NAMES = [
    "a b", "a%20b", "a%2Fb", "100%", "a#1", "a?b=c", "a'b", 'a"b', "a\nb", "a+b", "a&b", "a:b", "a\\b", "a*b", "[ab]",
    "é", "e\u0301", "🦉", "{x}", "$X", "~", "a,b", "a;b", " a", "-a",
]  # fmt: skip
NO_TEXT = os.fsdecode(b"caf\xe9")


def three_files(leaf: Adapter, folder: Path) -> list[Path]:
    return [leaf.write(folder, name, leaf.rows(ROWS, ROWS * place)) for place, name in enumerate("abc")]


@pytest.mark.parametrize(("leaf", "damage"), DAMAGES)
def test_a_damaged_file_costs_its_own_rows_and_says_the_true_reason(leaf: Adapter, damage: Damage, tmp_path: Path):
    paths = three_files(leaf, tmp_path)
    whole = read_all(leaf.source(tmp_path)).good
    damage.change(paths[1])
    read = read_all(leaf.source(tmp_path))
    a, b, c = (leaf.row_ids(path, tmp_path) for path in paths)
    assert set(read.good) == {*a, *c, *(b[number] for number in damage.kept)}
    assert lines(read.good.values()) == lines(whole[name] for name in read.good)
    assert read.bad
    assert all(damage.words in reason for reason in read.bad.values()), read.bad


@promise("damage", "an empty, cut or damaged file costs its own rows and says the true reason")
def test_damage_is_tried(leaf: Adapter):
    assert leaf.damages


@promise("vanished", "a file that vanishes after the listing costs its own rows")
def test_a_file_that_vanished_costs_its_own_rows(leaf: Adapter, tmp_path: Path):
    paths = three_files(leaf, tmp_path)
    source, units, schema = listed(leaf.source(tmp_path))
    paths[1].unlink()
    read = read_all(source, units, schema)
    assert len(read.good) == 3 * ROWS - (1 if leaf.rows_are_files else ROWS)
    assert set(read.types.values()) == {"SourceVanished"}


@promise("changed", "a file that changes after the listing costs its own rows")
def test_a_file_that_changed_costs_its_own_rows(leaf: Adapter, tmp_path: Path):
    paths = three_files(leaf, tmp_path)
    source, units, schema = listed(leaf.source(tmp_path))
    content = paths[1].read_bytes()
    paths[1].write_bytes(content + content)
    read = read_all(source, units, schema)
    assert len(read.good) == 3 * ROWS - (1 if leaf.rows_are_files else ROWS)
    assert set(read.types.values()) == {"SourceChanged"}


@promise("hidden", "hidden files, and files of other kinds, are passed over")
def test_hidden_files_are_passed_over(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.rows())
    for name in (".hidden", "_temporary", "_temporary/a", ".hidden2/a"):
        leaf.write(tmp_path, name, leaf.rows())
    (tmp_path / "README.nothing").write_text("no rows")
    read = read_all(leaf.source(tmp_path))
    assert (len(read.good), read.bad) == (ROWS, {})


@promise("names", "a name of any characters is read, and one that is no text is counted among what is passed over")
def test_a_name_of_any_characters_is_read(leaf: Adapter, tmp_path: Path):
    paths = [leaf.write(tmp_path, f"{name}/{name}", leaf.rows(1)) for name in NAMES]
    leaf.write(tmp_path, NO_TEXT, leaf.rows(1))
    with counting() as passed:
        read = read_all(leaf.source(tmp_path))
    assert not read.bad
    assert sorted(read.good) == sorted(row for path in paths for row in leaf.row_ids(path, tmp_path, 1))
    assert 1 in [found["files"] for found in passed.found.values()]


@promise("folders", "a column that the folder's name carries is there, as text")
def test_a_column_of_the_folder_s_name_is_there(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "country=DE/year=2024/a", leaf.rows())
    leaf.write(tmp_path, "country=São Tomé/year=2025/b", leaf.rows())
    leaf.write(tmp_path, "country=N%2FA/year=__HIVE_DEFAULT_PARTITION__/c", leaf.rows())
    read = read_all(leaf.source(tmp_path))
    assert not read.bad
    pairs = sorted({(row["country"], str(row["year"])) for row in read.good.values()})
    assert pairs == [("DE", "2024"), ("N/A", "None"), ("São Tomé", "2025")]


@promise("folders", "a column of the file has precedence, the day of the job is no column, and a setting ends it all")
def test_folders_replace_no_column_of_the_file(leaf: Adapter, tmp_path: Path):
    [name] = leaf.rows(1).column_names[:1]
    leaf.write(tmp_path, f"day=2024-01-01/{name}=x/country=DE/a", leaf.rows())
    dated = leaf.source(tmp_path)
    pattern = dated.model_copy(update={"path": f"{tmp_path}/*/"})
    assert lines(read_all(pattern).data()) == lines(
        row | {"day": "2024-01-01", "country": "DE"} for row in leaf.expected(tmp_path)
    )
    dated = dated.model_copy(update={"path": f"{tmp_path}/**/day={{partition}}/*/*/*"})
    assert lines(read_all(dated, partition="2024-01-01").data()) == lines(
        row | {"country": "DE"} for row in leaf.expected(tmp_path)
    )
    without = leaf.source(tmp_path).model_copy(update={"hive_columns": False})
    assert lines(read_all(without).data()) == lines(leaf.expected(tmp_path))
