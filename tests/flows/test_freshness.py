"""What is told of a partition that is late: an event read back from a real server, a notification to a real webhook."""

import json
import threading
from collections.abc import Iterator
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from overnight.flows.freshness import EVENT, freshness
from overnight.tasks.state.run import write_json
from overnight.tasks.storage.location import Location
from tests import jobs
from tests import webhook as webhooks
from tests.chaos.runs import wait_for
from tests.prefect_api import ask
from tests.webhook import SECRET, Webhook

DEADLINE = datetime(2025, 11, 19, 6, tzinfo=UTC)
ONCE = freshness.with_options(retries=0)  # which wait for minutes


@pytest.fixture
def webhook(prefect_api: str) -> Iterator[Webhook]:
    """The webhook, as the block `custom-webhook/on-call`."""
    with webhooks.webhook() as server:
        webhooks.save_block("on-call", server.url)
        yield server


def write_job(folder: Path, name: str, **schedule: Any) -> str:
    schedule = {**jobs.DAILY, "deadline": "06:00", "notify": "custom-webhook/on-call", **schedule}
    return str(jobs.write_job(folder / "job.yaml", name=name, schedule=schedule))


def new_check(job: str, at: datetime = DEADLINE, **parameters: str) -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.create_flow_run(ONCE, parameters={"job": job, **parameters}, state=Scheduled(scheduled_time=at))


def run(flow_run: FlowRun) -> State[Any]:
    found: State[Any] = run_flow(ONCE, flow_run=flow_run, return_type="state")  # type: ignore[assignment]
    return found


def check(job: str, at: datetime = DEADLINE, **parameters: str) -> State[Any]:
    return run(new_check(job, at, **parameters))


def events(api: str, name: str, expected: int = 1) -> list[dict[str, Any]]:
    """Events of the job's partitions, once the server has stored as many as are expected."""

    def found() -> list[dict[str, Any]]:
        every = ask(api, "/events/filter", {"filter": {"event": {"name": [EVENT]}}})["events"]
        mine = [event for event in every if event["payload"]["job"] == name]
        return mine if len(mine) >= expected else []

    return list(wait_for(f"{expected} events", found, 30))


def record(folder: Path, day: str = "2025-11-18") -> dict[str, Any]:
    return dict(json.loads((folder / f"out/_overnight/date={day}/late.json").read_text()))


def name_of(flow_run: FlowRun) -> str:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(flow_run.id).name


def test_a_late_partition_is_told_once_over_three_checks(prefect_api: str, webhook: Webhook, tmp_path: Path) -> None:
    job = write_job(tmp_path, "late", timezone="Europe/Berlin")
    failure = {"job": "late", "stage": "ingest", "error_message": "found none", "failed_at": "2025-11-19T02:00:01.000Z"}
    write_json(Location(f"{tmp_path}/out/_overnight/date=2025-11-18/failure.json"), failure)
    checks = [new_check(job, DEADLINE - timedelta(hours=1)) for _ in range(3)]
    assert [run(flow_run).name for flow_run in checks] == ["Completed"] * 3
    assert {name_of(flow_run) for flow_run in checks} == {"late/2025-11-18"}
    text = "Its deadline was 2025-11-19 06:00 CET. It is failed. ingest: found none"
    assert webhook.posts == [{"title": "late/2025-11-18 is late", "text": text}]
    [event] = events(prefect_api, "late")
    assert event["resource"]["prefect.resource.id"] == "overnight.partition.late.2025-11-18"
    assert event["payload"] == {
        **{"job": "late", "partition": "2025-11-18", "deadline": "2025-11-19T06:00:00+01:00"},
        **{"status": "failed", "why": ["ingest: found none"]},
    }
    assert record(tmp_path)["notified_at"]


def test_two_checks_at_once_tell_once_and_without_a_block_only_raise_the_event(
    prefect_api: str, webhook: Webhook, tmp_path: Path
) -> None:
    # A thread has no context of its own, and without it another Prefect server.
    told, quiet = write_job(tmp_path / "told", "at-once"), write_job(tmp_path / "quiet", "quiet", notify=None)
    checks = [threading.Thread(target=copy_context().run, args=(check, job)) for job in (told, quiet, told, quiet)]
    for thread in checks:
        thread.start()
    for thread in checks:
        thread.join(60)
    assert [post["title"] for post in webhook.posts] == ["at-once/2025-11-18 is late"]
    assert [len(events(prefect_api, name)) for name in ("at-once", "quiet")] == [1, 1]


def test_what_is_published_is_fresh_and_what_is_not_due_is_not_late(webhook: Webhook, tmp_path: Path) -> None:
    job = write_job(tmp_path, "fresh")
    receipt = {"job": "fresh", "generation": "g", "fingerprint": "old", "finished_at": "2025-11-19T02:10:00.000Z"}
    receipt["ingredients"] = {"settings": {}, "models": [], "steps": [], "format_version": 1}
    write_json(Location(f"{tmp_path}/out/_overnight/date=2025-11-18/receipt.json"), receipt)
    assert check(job).name == "Completed"
    assert check(job, partition="2025-11-19").name == "Completed"
    assert webhook.posts == []


def test_a_notification_that_fails_fails_the_check_and_is_sent_by_the_next_also_if_the_check_was_killed(
    prefect_api: str, webhook: Webhook, tmp_path: Path
) -> None:
    job = write_job(tmp_path, "retold")
    webhook.status = 503
    refused = check(job)
    assert refused.name == "Failed"
    assert "custom-webhook/on-call did not take the message: HTTPStatusError 503" in str(refused.message)
    mine = {"logs": {"flow_run_id": {"any_": [str(refused.state_details.flow_run_id)]}}}
    logs = wait_for("its log", lambda: ask(prefect_api, "/logs/filter", mine), 30)
    assert SECRET not in f"{refused.message}{logs}"
    assert record(tmp_path)["notified_at"] is None
    [file] = (tmp_path / "out/_overnight/date=2025-11-18/late/lease").iterdir()  # as a process leaves it that is gone
    file.write_text(json.dumps({**json.loads(file.read_text()), "released": False, "pid": 2**22 + 1}))
    webhook.status = 200
    assert check(job, DEADLINE + timedelta(days=1)).name == "Completed"  # the next night's
    titles = [post["title"] for post in webhook.posts]
    assert titles == ["retold/2025-11-18 is late", "retold/2025-11-19 is late"]
    assert len(events(prefect_api, "retold", 2)) == 2


def test_each_receiver_is_told_once_also_if_another_one_refuses(
    webhook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with webhooks.webhook() as own:
        monkeypatch.setenv("LATE_HOOK", own.url)
        notify = [{"on": ["late"], "webhook": "${LATE_HOOK}"}, {"on": ["failed"], "webhook": "${LATE_HOOK}"}]
        schedule = {**jobs.DAILY, "deadline": "06:00", "notify": "custom-webhook/on-call"}
        job = str(jobs.write_job(tmp_path / "job.yaml", name="both", schedule=schedule, notify=notify))
        webhook.status = 503
        assert check(job).is_failed()
        assert [post["title"] for post in own.posts] == ["both/2025-11-18 is late"]
        webhook.status = 200
        assert check(job).is_completed()
        assert check(job).is_completed()
        assert [(post["events"], post["status"]) for post in own.posts] == [(["late"], "late")]
        assert [post["title"] for post in webhook.posts] == ["both/2025-11-18 is late"]
    assert record(tmp_path)["notified"].keys() == {"custom-webhook/on-call", "the webhook ${LATE_HOOK}"}


def test_a_block_that_is_not_there_is_named_and_a_job_file_that_is_wrong_fails_the_check(
    prefect_api: str, tmp_path: Path
) -> None:
    failed = check(write_job(tmp_path, "unknown", notify="slack-webhook/nobody"))
    assert failed.name == "Failed"
    assert "expected a block slack-webhook/nobody" in str(failed.message)
    (tmp_path / "job.yaml").write_text("name: unknown")
    broken = new_check(str(tmp_path / "job.yaml"))
    assert run(broken).is_failed()
    assert name_of(broken) == "job/invalid"
