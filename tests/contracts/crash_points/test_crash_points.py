"""A run that fails or dies at any of its operations is put right by the next one, for every sink and store.

Each case counts the operations of a whole attempt, then makes it fail at each of them: by the end of the process, and
where one publish replaces another also by an error before the operation and by one after it. After each, readers see
the old rows or the new ones, a foreign file is as it was, and no staged part is lost. Then the next run publishes
exactly the rows.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state import lease
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.storage.location import Location
from overnight.tasks.write.publish.publish import repair
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.sinks.hive_files import HiveFiles
from tests.contracts.crash_points.attempts import Work, attempt, settled
from tests.contracts.crash_points.operations import WAYS, Dead, Operations, Way, counted
from tests.contracts.sinks.publications import create_schema, drop_schema, numbered, read_files, sink_of, visible

OLD, NEW = [1, 2, 3], [4, 5, 6]
FIRST, REPLACING = Work(NEW), Work(NEW)
KEEPING, REFUSED, EMPTY = Work([4, 5], kept=OLD), Work(NEW, refused=True), Work([])
FOREIGN = "_theirs"


@dataclass
class Place:
    """Where a case publishes: the job of the old rows ran there, unless it is the first publish."""

    kind: str
    root: str
    partition: str
    before: list[int]

    @property
    def sink(self) -> Sink:
        made = sink_of(self.kind, self.root)
        return made.model_copy(update={"target_file_size": 2**27}) if hasattr(made, "target_file_size") else made

    def run(self, number: int) -> Run:
        """An attempt of the generation of the new rows."""
        return replace(numbered(self.root, number, self.partition), generation="g002")

    def begin(self) -> None:
        if self.before:
            attempt(numbered(self.root, 1, self.partition), self.sink, self.kind, Work(OLD))
        (self.run(2).target / FOREIGN).write_bytes(b"theirs")


@pytest.fixture
def template(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Iterator[Place]]:
    """Places that are alike, one at a time: on the disk under one path, because an Iceberg table has whole paths."""

    def places(kind: str, store: str, partition: str, before: list[int]) -> Iterator[Place]:
        if kind == "postgresql":
            request.getfixturevalue("postgres")
        number = 0
        root, kept = tmp_path / "place", tmp_path / "template"
        while True:
            number += 1
            if store == "memory":
                place = Place(kind, f"memory://{tmp_path.name}-{number}", partition, before)
                place.begin()
            elif kind == "postgresql":
                place = Place(kind, str(tmp_path / str(number)), partition, before)
                create_schema(place.sink)
                place.begin()
            else:
                place = Place(kind, str(root), partition, before)
                if not kept.exists():
                    root.mkdir()
                    place.begin()
                    shutil.copytree(root, kept, symlinks=True)
                shutil.rmtree(root)
                shutil.copytree(kept, root, symlinks=True)
            yield place
            if kind == "postgresql":
                drop_schema(place.sink)
            if store == "memory":
                fsspec.filesystem("memory").rm(place.root.removeprefix("memory:/"), recursive=True)

    return places


@pytest.fixture(autouse=True)
def _leases_expire_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead holder of this very process looks alive: its lease is over because nobody renews it."""
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 0.0)
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 3600.0)


def failing(place: Place, number: int, work: Work, operations: Operations, tries: int = 1) -> None:
    """An attempt on a storage that fails once, or for ever."""
    with counted(operations), contextlib.suppress(Exception, Dead):
        attempt(place.run(number), place.sink, place.kind, work, tries)


def assert_put_right(place: Place, work: Work, before: list[int], store: str) -> None:
    """Readers see one version now, and exactly the new rows after the next run."""
    run, sink = place.run(4), place.sink
    after = sorted([*work.kept, *work.numbers])
    if store == "disk":
        assert visible(run, sink) in (before, before if work.refused else after)
    else:
        assert seen_by_followers(run, sink) in (before, before if work.refused else after)
    assert (run.target / FOREIGN).read_bytes() == b"theirs"
    parts = settled(run)
    with contextlib.suppress(CheckFailed):
        attempt(run, sink, place.kind, work)
    expected = before if work.refused else after
    assert visible(run, sink) == expected
    assert (run.target / FOREIGN).read_bytes() == b"theirs"
    assert repair(run, sink) is None
    assert settled(run) == (len(work.numbers) if work.refused else 0) >= (parts if work.refused else 0)
    receipt = read_json(run.ledger / "receipt.json")
    assert (receipt or {}).get("generation") == ("g002" if not work.refused else "g001" if before else None)
    for home in (run.sink, run.sink.parent):
        assert [names for name in home.names() if "publishing" in name and (names := (home / name).names())] == []
    assert left_over(run.target) == []


def seen_by_followers(run: Run, sink: Sink) -> list[int]:
    """The rows of the files that the receipt lists: of a table or a database, those that all readers find."""
    receipt = read_json(run.ledger / "receipt.json")
    if not isinstance(sink, HiveFiles) or receipt is None:
        return visible(run, sink) if receipt else []
    files = [file for file in receipt["files"] if not file.endswith(".images")]
    return sorted(read_files(run.sink, files)["x"].to_pylist())


def left_over(target: Location) -> list[str]:
    return [name for name in target.names() if name.endswith((".part", ".tmp"))]


CASES = [
    ("parquet", "disk", "2026-01-02", "replacing", REPLACING, OLD),
    ("parquet", "disk", "2026-01-02", "first", FIRST, []),
    ("parquet", "disk", "2026-01-02", "keeping", KEEPING, OLD),
    ("parquet", "disk", "2026-01-02", "refused", REFUSED, OLD),
    ("parquet", "disk", "2026-01-02", "empty", EMPTY, OLD),
    ("parquet", "disk", "all", "keeping", KEEPING, OLD),
    ("parquet", "memory", "2026-01-02", "replacing", REPLACING, OLD),
    ("jsonl", "disk", "all", "replacing", REPLACING, OLD),
    ("jsonl", "memory", "all", "keeping", KEEPING, OLD),
    ("csv", "disk", "2026-01-02", "replacing", REPLACING, OLD),
    ("csv", "memory", "2026-01-02", "refused", REFUSED, OLD),
    ("images", "disk", "2026-01-02", "replacing", REPLACING, OLD),
    ("images", "memory", "all", "keeping", KEEPING, OLD),
    ("delta", "disk", "2026-01-02", "replacing", REPLACING, OLD),
    ("delta", "disk", "all", "first", FIRST, []),
    ("delta", "disk", "2026-01-02", "keeping", KEEPING, OLD),
    ("delta", "disk", "2026-01-02", "refused", REFUSED, OLD),
    ("iceberg", "disk", "2026-01-02", "replacing", REPLACING, OLD),
    ("iceberg", "disk", "all", "first", FIRST, []),
    ("lance", "disk", "2026-01-02", "replacing", REPLACING, OLD),
    ("lance", "disk", "all", "first", FIRST, []),
    ("lance", "disk", "2026-01-02", "keeping", KEEPING, OLD),
    ("lance", "disk", "2026-01-02", "refused", REFUSED, OLD),
    ("sql", "disk", "2026-01-02", "replacing", REPLACING, OLD),
    ("sql", "disk", "all", "first", FIRST, []),
    ("sql", "disk", "2026-01-02", "keeping", KEEPING, OLD),
    ("sql", "disk", "2026-01-02", "refused", REFUSED, OLD),
    ("postgresql", "disk", "2026-01-02", "replacing", REPLACING, OLD),
]


def marked(case: tuple[Any, ...]) -> Any:
    """The case with a name; those of an undo are quick, and the others take up to half a minute."""
    kind, store, partition, name = case[:4]
    marks = () if name == "refused" else (pytest.mark.slow,)
    return pytest.param(*case, id=f"{kind}-{store}-{partition}-{name}", marks=marks)


@pytest.mark.parametrize(("kind", "store", "partition", "name", "work", "before"), map(marked, CASES))
def test_a_run_that_fails_at_any_of_its_operations_is_put_right(
    kind: str, store: str, partition: str, name: str, work: Work, before: list[int], template: Any
) -> None:
    places = template(kind, store, partition, before)
    whole = Operations()
    failing(next(places), 2, work, whole)
    count = len(whole.names)
    assert count > 20
    ways = WAYS if (name, store) == ("replacing", "disk") else ("dies",)  # an error differs from an end in the tries
    faults = {way: tried(places, way, work, before, store) for way in ways}
    print(f"{kind} on {store}, {partition}, {name}: {count} operations, faults tried: {faults}")
    assert all(abs(number - count) <= 2 for number in faults.values()), "the number of operations may vary by a look"


def tried(places: Iterator[Place], way: Way, work: Work, before: list[int], store: str) -> int:
    """The number of operations at each of which an attempt failed, up to its last one."""
    last = 1
    while fails_once(next(places), way, last, work, before, store):
        last += 1
    return last - 1


def fails_once(place: Place, way: Way, last: int, work: Work, before: list[int], store: str) -> bool:
    """Fail at one operation, and then once more while the next run repairs it, at an operation that varies."""
    operations = Operations(last, way)
    failing(place, 2, work, operations, tries=2 if last % 2 else 1)
    try:
        if way == "dies":
            failing(place, 3, work, Operations(1 + 7 * last % 29, "dies"))
        assert_put_right(place, work, before, store)
    except (Exception, AssertionError) as error:
        error.add_note(f"after an attempt that {way} operation {last}, {operations.names[last - 1 :][:1]}")
        raise
    return len(operations.names) >= last
