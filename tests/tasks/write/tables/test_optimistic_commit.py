"""A commit that another one came before is made again on the new version, and a fence excludes it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from overnight.tasks.state.lease import LeaseLost
from overnight.tasks.state.run import Run
from overnight.tasks.write.tables import optimistic_commit
from tests.contracts.sinks.publications import holding
from tests.tasks.runs import make_run


class Conflict(Exception):
    pass


@dataclass
class Table:
    """A table with a history, where a commit says on which version it was made."""

    history: list[str]

    def commit(self, version: int, name: str) -> None:
        if version != len(self.history):
            raise Conflict(f"made on {version}, found {len(self.history)}")
        self.history.append(name)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds slept, instead of sleeping."""
    slept: list[float] = []
    monkeypatch.setattr(optimistic_commit.time, "sleep", slept.append)
    return slept


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with holding(make_run(tmp_path)) as held:
        yield held


def test_a_commit_that_others_came_before_is_made_again_on_the_new_version(run: Run, waits: list[float]) -> None:
    table, others = Table([]), ["a", "b"]

    def put_in(version: int) -> None:
        if others:
            table.history.append(others.pop())  # between the look and the commit
        table.commit(version, "ours")

    optimistic_commit.commit(run, Conflict, lambda: len(table.history), lambda _: False, put_in)
    assert table.history == ["b", "a", "ours"]
    assert len(waits) == 2


def test_a_commit_whose_answer_was_lost_is_not_made_twice(run: Run) -> None:
    table = Table([])

    def put_in(version: int) -> None:
        table.commit(version, "ours")
        raise Conflict("the connection was reset")

    optimistic_commit.commit(run, Conflict, lambda: len(table.history), lambda _: "ours" in table.history, put_in)
    assert table.history == ["ours"]


def test_who_lost_the_lease_does_not_commit(run: Run) -> None:
    with pytest.raises(LeaseLost):
        optimistic_commit.commit(replace(run, token=run.token - 1), Conflict, list, bool, pytest.fail)


def test_a_paused_commit_fails_after_the_fence_and_finds_that_the_lease_is_lost(run: Run) -> None:
    table = Table(["before"])

    def pause(version: int) -> None:
        """A later run takes over in the middle of the commit, and fences it off."""
        (run.ledger / "lease" / f"{run.token + 1:08d}").write_bytes(b"")
        assert not optimistic_commit.fence(
            Conflict, lambda: len(table.history), lambda _: False, lambda seen: table.commit(seen, "fence")
        )
        table.commit(version, "ours")

    with pytest.raises(LeaseLost):
        optimistic_commit.commit(run, Conflict, lambda: len(table.history), lambda _: False, pause)
    assert table.history == ["before", "fence"]


def test_a_fence_finds_what_was_committed_and_changes_nothing_then() -> None:
    assert optimistic_commit.fence(Conflict, lambda: ["ours"], lambda table: "ours" in table, pytest.fail)
    assert not optimistic_commit.fence(Conflict, lambda: None, pytest.fail, pytest.fail)


def test_a_table_that_always_conflicts_fails_in_the_end_with_its_own_error(waits: list[float]) -> None:
    def attempt() -> None:
        raise Conflict("again")

    with pytest.raises(Conflict):
        optimistic_commit.until_committed(attempt, Conflict)
    assert len(waits) == optimistic_commit.RETRIES.max_tries - 1
    assert max(waits) <= 1
