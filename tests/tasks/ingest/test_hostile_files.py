"""Hostile files among whole ones, as the first that a source looks at and behind these: each costs itself alone.

A file is damaged, or declares what is not there, or would fill the memory of a reader that believes it.
"""

import re
import time
from pathlib import Path

import pytest

from overnight.tasks.ingest.formats import text_lines
from overnight.tasks.ingest.listing.list_files import list_inputs
from tests.fuzz.child import forget_peak, peak_bytes
from tests.fuzz.targets import rows_of
from tests.tasks.ingest.conftest import read_all
from tests.tasks.ingest.hostile import archives, columns, texts
from tests.tasks.ingest.hostile.cases import Case, Family

FAMILIES = texts.FAMILIES | columns.FAMILIES | archives.FAMILIES
WHOLES = 9  # more than a source looks at before it reads
PLACES = {"first": "0", "behind": "z"}
SECONDS, BYTES = 5.0, 128 * 2**20  # of the CPU, so that a busy machine does not count
HOSTILE = [
    pytest.param(family, f"{PLACES[place]}-{name}", case, id=f"{kind}-{name}-{place}")
    for kind, family in FAMILIES.items()
    for name, case in {**family.broken, **family.lying}.items()
    for place in PLACES
]
BOMBS = [
    pytest.param(family, f"{PLACES[place]}-{name}", case, id=f"{kind}-{name}-{place}")
    for kind, family in FAMILIES.items()
    for name, case in family.killing.items()
    for place in PLACES
]


def written(family: Family, folder: Path, name: str, case: Case) -> None:
    for number in range(WHOLES):
        (folder / f"m{number}.{family.extension}").write_bytes(family.whole)
    (folder / name).write_bytes(case.content)


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_kind_has_ten_broken_files_and_five_that_lie(kind: str) -> None:
    family = FAMILIES[kind]
    assert len(family.broken) >= 10
    assert len(family.lying) >= 5


@pytest.mark.parametrize(("family", "name", "case"), HOSTILE)
def test_a_hostile_file_costs_itself_and_no_other(family: Family, name: str, case: Case, tmp_path: Path) -> None:
    written(family, tmp_path, name, case)
    began = time.process_time()
    found = read_all(family.source(path=str(tmp_path), **family.settings))
    assert time.process_time() - began < SECONDS
    wholes = [row for row in found.good if row.startswith("m")]
    assert len(wholes) == WHOLES * family.rows
    assert {row.partition("#")[0] for row in found.bad} <= {name}
    is_good = not case.words or (case.fits_alone and name.startswith(PLACES["first"]))
    assert bool(found.bad) != is_good
    assert all(case.words in reason for reason in found.bad.values()), found.bad
    if not case.fits_alone:
        assert len(found.good) - len(wholes) == case.kept


@pytest.mark.parametrize(("family", "name", "case"), BOMBS)
def test_a_file_that_unpacks_to_much_more_is_not_held_whole(
    family: Family, name: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "LINE_BYTES", 2**22)
    written(family, tmp_path, name, case)
    source = family.source(path=str(tmp_path), **family.settings)
    forget_peak()
    before = peak_bytes()
    found = rows_of(source, source.units(list_inputs(source, "all")))
    assert peak_bytes() - before < BYTES
    assert len([row for row in found.good if row.startswith("m")]) == WHOLES * family.rows
    assert len(found.good) - WHOLES * family.rows == case.kept
    assert {re.sub("#.*", "", row) for row in found.bad} == ({name} if case.words else set())
