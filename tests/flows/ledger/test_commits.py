"""Commits of hub models: what they make stale, what they leave alone, and what a resumed run loads."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.logging import disable_run_logger

from overnight.cli.status_view import show_status
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.runs.attempt import fresh_receipt, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state.manifest import digest
from overnight.tasks.state.run import Run, write_json
from tests.model_hub import MODEL, NEW, OLD, ModelHub, model_hub, use

NOW = datetime(2026, 1, 3, 12, tzinfo=UTC)
GENERATION = "20260101T000000-aaaaaa-bbbbbb"
DAYS = ("2026-01-01", "2026-01-02")


@dataclass
class Place:
    """A job with a hub model, both of whose partitions are published with the commit NEW."""

    folder: Path
    hub: ModelHub

    def job(self, **settings: Any) -> Job:
        model = {"kind": "text_embedding", "model": MODEL, "text_column": "x", **settings}
        source = {"kind": "parquet", "path": f"{self.folder}/in/date={{partition}}"}
        sink = {"kind": "parquet", "path": f"{self.folder}/out"}
        return Job.model_validate({"name": "texts", "source": source, "inference": [model], "sink": sink})

    def run(self, day: str = DAYS[1], **settings: Any) -> Run:
        return describe_run(self.job(**settings), day)

    def publish(self, day: str) -> None:
        run = self.run(day)
        assert dict(run.commits) == {MODEL: NEW}
        receipt = {
            **{"job": "texts", "partition": day, "generation": GENERATION, "attempt": "a", "token": 1, "files": []},
            **{"rows_in": 1, "rows_out": 1, "rows_filtered": 0, "rows_quarantined": 0, "seconds": 1.0},
            **{"finished_at": "2026-01-03T00:00:00.000Z", "fingerprint": run.fingerprint},
            **{"ingredients": run.ingredients, "commits": dict(run.commits)},
            "inputs": digest(stream_inputs(self.job().source, day)),
        }
        write_json(run.ledger / "receipt.json", receipt)
        write_json(run.ledger / f"receipts/{GENERATION}.json", receipt)
        write_json(
            run.ledger / f"generations/{GENERATION}/generation.json",
            {"fingerprint": run.fingerprint, "format_version": 1},
        )

    def entries(self, **settings: Any) -> list[PartitionStatus]:
        return read_ledger(self.job(**settings), now=NOW)

    def is_fresh(self, **settings: Any) -> bool:
        return fresh_receipt(self.job(**settings), self.run(**settings)) is not None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with model_hub({"config.json": b"{}"}) as hub:
        use(hub, str(tmp_path / "cache"), monkeypatch)
        place = Place(tmp_path, hub)
        for day in DAYS:
            (tmp_path / f"in/date={day}").mkdir(parents=True)
            pq.write_table(pa.table({"x": ["a"]}), tmp_path / f"in/date={day}/a.parquet")
            place.publish(day)
        yield place


def test_the_same_commit_is_published(place: Place) -> None:
    assert [(entry.status, entry.why) for entry in place.entries()] == [("published", ())] * 2
    assert place.is_fresh()


def test_a_new_commit_makes_every_partition_stale_by_one_request(place: Place) -> None:
    place.hub.revisions["main"] = OLD
    place.hub.seen.clear()
    why = f"{MODEL} changed on the hub: {NEW[:12]} -> {OLD[:12]}"
    assert [(entry.status, entry.why) for entry in place.entries()] == [("stale", (why,))] * 2
    assert place.hub.seen == [f"/api/models/{MODEL}"]
    assert not place.is_fresh()


def test_a_receipt_without_commits_is_not_stale(place: Place) -> None:
    for day in DAYS:
        path = Path(place.run(day).ledger.uri) / "receipt.json"
        receipt = json.loads(path.read_text())
        del receipt["commits"]
        path.write_text(json.dumps(receipt))
    assert [(entry.status, entry.why) for entry in place.entries()] == [("published", ())] * 2
    assert place.is_fresh()


def test_a_hub_that_does_not_answer_leaves_them_published_and_says_so_once(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.hub.status = 503
    why = f"{MODEL}: unknown if it changed, because the hub cannot be reached"
    entries = place.entries()
    assert [(entry.status, entry.why) for entry in entries] == [("published", (why,))] * 2
    assert place.is_fresh()
    show_status("texts", entries)
    assert " ".join(capsys.readouterr().out.split()).count(why) == 1


def test_another_revision_is_another_setting(place: Place) -> None:
    [*_, entry] = place.entries(revision="v1")
    assert (entry.status, entry.why) == (
        "stale",
        ("settings changed: inference.text_embedding.revision: not set -> v1",),
    )


def test_an_abandoned_run_is_resumed_with_the_commit_it_began_with(place: Place) -> None:
    job = place.job()
    with pytest.raises(KeyboardInterrupt), opened(job, place.run(), True) as begun:
        raise KeyboardInterrupt
    place.hub.revisions["main"] = OLD
    run = place.run()
    assert dict(run.commits) == {MODEL: OLD}
    with disable_run_logger(), opened(job, run, False) as resumed:
        assert (resumed.generation, dict(resumed.commits)) == (begun.generation, {MODEL: NEW})
        [model] = job.pinned(resumed).models
        assert model.pins == {"hub": MODEL, "commit": NEW}
    with disable_run_logger(), opened(job, run, True) as forced:
        assert dict(forced.commits) == {MODEL: OLD}
