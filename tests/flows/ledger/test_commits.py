"""Commits of hub models: what they make stale, what they leave alone, and what a resumed run loads."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from overnight.cli.status_view import show_status
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.runs.attempt import Scope, fresh_receipt, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.state.run import Run
from tests import jobs
from tests.flows.ledger.published import publish
from tests.model_hub import MODEL, NEW, OLD, ModelHub, model_hub, use

DAYS = ("2026-01-01", "2026-01-02")


@dataclass
class Place:
    """A job with a hub model, both of whose partitions are published with the commit NEW."""

    folder: Path
    hub: ModelHub

    def job(self) -> Job:
        model = {"kind": "text_embedding", "model": MODEL, "text_column": "x"}
        return jobs.load(self.folder, name="texts", inference=[model])

    def run(self) -> Run:
        return describe_run(self.job(), DAYS[1])

    def entries(self) -> list[PartitionStatus]:
        return read_ledger(self.job(), now=datetime(2026, 1, 3, 12, tzinfo=UTC))

    def statuses(self) -> list[tuple[str, tuple[str, ...]]]:
        """What each day is and why. `overnight run` leaves as it is what is published."""
        entries = self.entries()
        assert [entry.status for entry in entries][1:] == [
            "published" if fresh_receipt(self.job(), self.run()) else "stale"
        ]
        return [(entry.status, entry.why) for entry in entries]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    jobs.write_days(tmp_path, DAYS)
    with model_hub({"config.json": b"{}"}) as hub:
        use(hub, str(tmp_path / "cache"), monkeypatch)
        place = Place(tmp_path, hub)
        for day in DAYS:
            assert publish(place.job(), day)["commits"] == {MODEL: NEW}
        yield place


def test_a_new_commit_makes_every_partition_stale_by_one_request(place: Place) -> None:
    assert place.statuses() == [("published", ())] * 2
    place.hub.revisions["main"] = OLD
    place.hub.seen.clear()
    why = f"{MODEL} changed on the hub: {NEW[:12]} -> {OLD[:12]}"
    assert [(entry.status, entry.why) for entry in place.entries()] == [("stale", (why,))] * 2
    assert place.hub.seen == [f"/api/models/{MODEL}"]
    assert place.statuses()[1][0] == "stale"


def test_a_receipt_without_commits_is_not_stale(place: Place) -> None:
    for path in place.folder.glob("out/_overnight/date=*/receipt.json"):
        receipt = json.loads(path.read_text())
        del receipt["commits"]
        path.write_text(json.dumps(receipt))
    assert place.statuses() == [("published", ())] * 2


def test_a_hub_that_does_not_answer_leaves_them_published_and_says_so_once(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.hub.status = 503
    why = f"{MODEL}: unknown if it changed, because the hub cannot be reached"
    assert place.statuses() == [("published", (why,))] * 2
    show_status("texts", place.entries())
    assert " ".join(capsys.readouterr().out.split()).count(why) == 1


def test_an_abandoned_run_is_resumed_with_the_commit_it_began_with(place: Place) -> None:
    job = place.job()
    with pytest.raises(KeyboardInterrupt), opened(job, Scope(place.run()), True) as begun:
        raise KeyboardInterrupt
    place.hub.revisions["main"] = OLD
    run = place.run()
    assert dict(run.commits) == {MODEL: OLD}
    with disable_run_logger(), opened(job, Scope(run), False) as resumed:
        assert (resumed.generation, dict(resumed.commits)) == (begun.generation, {MODEL: NEW})
        [model] = job.pinned(resumed).models
        assert model.pins == {"hub": MODEL, "commit": NEW}
    with disable_run_logger(), opened(job, Scope(run), True) as forced:
        assert dict(forced.commits) == {MODEL: OLD}
