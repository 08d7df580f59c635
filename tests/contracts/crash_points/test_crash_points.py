"""A run that fails or dies at any of its operations is put right by the next one, for every sink and store.

Each case counts the operations of a whole attempt, then ends the process at each of them. After it, readers see the old
rows or the new ones, a foreign file is as it was, and no staged part is lost. Then the next run publishes exactly the
rows. Where one publish replaces another, operations also raise errors, before they are done or after: each one of
Parquet files, and those of the table or the database for other sinks, which share the rest with Parquet files.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pyiceberg.catalog.sql
import pytest
import sqlalchemy

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state import lease
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.storage import location
from overnight.tasks.write.merge import merge_parts
from overnight.tasks.write.publish.publish import repair
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.sinks.hive_files import HiveFiles
from overnight.tasks.write.tables import sql
from tests.contracts.crash_points.attempts import Work, attempt, settled
from tests.contracts.crash_points.operations import Dead, Operations, Storage, Way
from tests.contracts.crash_points.places import DAY, FOREIGN, Place
from tests.contracts.sinks import publications
from tests.contracts.sinks.publications import (
    read_files,
    visible,
)

OLD, NEW = [1, 2, 3], [4, 5, 6]
WORKS = {
    "replacing": Work(NEW),
    "first": Work(NEW),
    "keeping": Work([4, 5], kept=OLD),
    "refused": Work(NEW, refused=True),
    "empty": Work([]),
    "as-staged": Work(NEW, as_staged=True),
    "undoing": Work(NEW, undo=True),
}
ON_FILES = ("os.", "LocalFileSystem.")
ERRORS: tuple[Way, ...] = ("raises before", "raises after")


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """A dead holder of this very process looks alive: its lease is over because nobody renews it.

    To look up a filesystem, and to make an engine that has compiled no statement yet, takes half of the time.
    """
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 0.0)
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 3600.0)
    monkeypatch.setattr(merge_parts, "COPIES_AT_ONCE", 1)  # so that operations have an order
    monkeypatch.setattr(location, "open_filesystem", functools.cache(location.open_filesystem))
    monkeypatch.setattr(publications, "engine", functools.cache(sql.engine))
    monkeypatch.setattr(sql, "engine", publications.engine)
    unpooled = functools.partial(sqlalchemy.create_engine, poolclass=sqlalchemy.NullPool)
    monkeypatch.setattr(pyiceberg.catalog.sql, "create_engine", functools.cache(unpooled))
    with Storage().patched() as storage:
        yield storage


def failing(storage: Storage, place: Place, number: int, operations: Operations, tries: int = 1) -> None:
    """An attempt on a storage that fails once, or for ever."""
    with storage.counted(operations), contextlib.suppress(Exception, Dead):
        attempt(place.run(number), place.sink, place.kind, place.work, tries)


def assert_put_right(place: Place) -> None:
    """Readers see one version now, and exactly the new rows after the next run."""
    run, sink, work = place.run(4), place.sink, place.work
    after = place.before if work.refused else sorted([*work.kept, *work.numbers])
    is_on_disk = not place.root.startswith("memory:")
    assert (visible if is_on_disk else seen_by_followers)(run, sink) in (place.before, after)
    assert (run.target / FOREIGN).read_bytes() == b"theirs"
    parts = settled(run)
    with contextlib.suppress(CheckFailed):
        attempt(run, sink, place.kind, work)
    assert visible(run, sink) == after
    assert (run.target / FOREIGN).read_bytes() == b"theirs"
    assert repair(run, sink) is None
    if work.undo:
        assert run.parts.names() == []
    elif work.refused:
        assert settled(run) == len(work.numbers) >= parts
    else:
        assert run.parts.names() == []
    receipt = read_json(run.ledger / "receipt.json") or {}
    assert receipt.get("generation") == ("g002" if not work.refused else "g001" if place.before else None)
    for home in (run.sink, run.sink.parent):
        assert [names for name in home.names() if "publishing" in name and (names := (home / name).names())] == []
    assert [name for name in run.target.names() if name.endswith((".part", ".tmp"))] == []


def seen_by_followers(run: Run, sink: Sink) -> list[int]:
    """The rows of the files that the receipt lists: of a table or a database, those that all readers find."""
    receipt = read_json(run.ledger / "receipt.json")
    if not isinstance(sink, HiveFiles) or receipt is None:
        return visible(run, sink) if receipt else []
    files = [file for file in receipt["files"] if not file.endswith(".images")]
    return sorted(read_files(run.sink, files)["x"].to_pylist())


CASES = [
    *(("parquet", "disk", DAY, name) for name in WORKS),
    ("parquet", "disk", "all", "keeping"),
    ("parquet", "memory", DAY, "replacing"),
    ("parquet", "memory", DAY, "as-staged"),
    ("jsonl", "disk", "all", "replacing"),
    ("jsonl", "memory", "all", "keeping"),
    ("csv", "disk", DAY, "replacing"),
    ("csv", "memory", DAY, "refused"),
    ("images", "disk", DAY, "replacing"),
    ("images", "memory", "all", "keeping"),
    *((kind, "disk", DAY, name) for kind in ("delta", "lance", "sql") for name in ("replacing", "keeping", "refused")),
    *((kind, "disk", DAY, "undoing") for kind in ("parquet", "images", "delta", "iceberg", "lance")),
    ("parquet", "disk", "all", "undoing"),
    ("parquet", "memory", DAY, "undoing"),
    *((kind, "disk", "all", "first") for kind in ("delta", "iceberg", "lance", "sql")),
    ("iceberg", "disk", DAY, "replacing"),
    ("postgresql", "disk", DAY, "replacing"),
]


@pytest.mark.parametrize(
    ("kind", "store", "partition", "name"),
    [
        pytest.param(*case, id="-".join(case), marks=() if case[3] == "refused" else (pytest.mark.slow,))
        for case in CASES
    ],
)
def test_a_run_that_fails_at_any_of_its_operations_is_put_right(
    kind: str, store: str, partition: str, name: str, storage: Storage, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "postgresql":
        request.getfixturevalue("postgres")
    root = f"memory://{tmp_path.name}/place" if store == "memory" else str(tmp_path / "place")
    place = Place(kind, root, partition, WORKS[name], [] if name == "first" else OLD)
    restore = place.begin()
    restore()
    whole = Operations()
    failing(storage, place, 2, whole)
    count = len(whole.names)
    assert count > 20
    if place.work.as_staged:
        assert len([name for name in place.run(2).target.names() if name.startswith("part-g002")]) == 2
    dead = 0
    while fails_once(storage, place, restore, dead + 1, "dies"):
        dead += 1
    assert abs(dead - count) <= 2, "the number of operations may vary by a look"
    is_raising = name in ("replacing", "as-staged") and store == "disk"
    raising = [
        last
        for last, operation in enumerate(whole.names, 1)
        if is_raising and (kind == "parquet" or not operation.startswith(ON_FILES))
    ]
    for last, way in itertools.product(raising, ERRORS):
        fails_once(storage, place, restore, last, way)
    print(f"{kind} on {store}, {partition}, {name}: died at {dead} operations, {len(raising)} raised")


def fails_once(storage: Storage, place: Place, restore: Callable[[], None], last: int, way: Way) -> bool:
    """Fail at one operation. If it is odd, the next run dies too while it repairs it, at an operation that varies."""
    restore()
    operations = Operations(last, way)
    failing(storage, place, 2, operations, tries=1 + last % 2)
    try:
        if way == "dies" and last % 2:
            failing(storage, place, 3, Operations(1 + 7 * last % 29, "dies"))
        assert_put_right(place)
    except (Exception, AssertionError) as error:
        error.add_note(f"after an attempt that {way} operation {last}, {operations.names[last - 1 :][:1]}")
        raise
    return len(operations.names) >= last
