"""The notice of a run at each of its ends, with its real ledger and a real webhook, without Ray."""

import _thread
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from overnight.flows.job.model import Job
from overnight.flows.notices import run_notice, sending
from overnight.flows.notices.run_notice import noticed
from overnight.flows.runs.attempt import Scope, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import BudgetReached, InputError, StageFailed
from tests import webhook as webhooks
from tests.flows.report.runs import job_of, publish, receipt_of
from tests.webhook import Webhook

ALL = ["published", "failed", "quarantined", "drift"]
DAY = "2026-01-09"


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setattr(sending, "SECONDS_BETWEEN", 0.05)
    monkeypatch.setattr(run_notice, "get_run_logger", lambda: logging.getLogger("a run"))
    with disable_run_logger(), webhooks.webhook() as server:
        monkeypatch.setenv("OPS_HOOK", server.url)
        yield server


def told(folder: Path, *receivers: dict[str, Any]) -> Job:
    notify = [{"webhook": "${OPS_HOOK}", **receiver} for receiver in receivers or ({"on": ALL},)]
    return job_of(folder, notify=notify)


def end(job: Job, folder: Path, error: BaseException | None = None, sample: bool = False, **receipt: Any) -> None:
    """Run a partition up to its end: a publish with this receipt, or this error."""
    scope = Scope(describe_run(job, DAY))
    with noticed(job, DAY, "job.yaml", sample) as notice, opened(job, scope, True, notice) as run:
        if error:
            raise error
        notice.end(run, publish(folder, receipt_of(DAY, **{"generation": run.generation, **receipt})))


def test_a_publish_is_told_with_its_verdict_its_counts_and_its_page(webhook: Webhook, tmp_path: Path) -> None:
    end(told(tmp_path), tmp_path)
    [post] = webhook.posts
    assert (post["events"], post["rows_in"], post["rows_out"]) == (["published"], 10, 10)
    assert post["sentence"].startswith("Trust it: 10 rows published of 10 read")
    assert post["title"] == f"daily/{DAY} published"
    assert "Trust it" in Path(post["report"]).read_text()
    assert f"/date={DAY}/reports/" in post["report"]


def test_quarantined_rows_are_told_above_the_bound_of_each_receiver(webhook: Webhook, tmp_path: Path) -> None:
    bounds = [{"on": ["quarantined"], "quarantined_over": bound} for bound in (0.05, 0.1, 0.2)]
    end(told(tmp_path, *bounds, {"on": ["failed"]}), tmp_path, rows_quarantined=1, rows_out=9, rows_written=9)
    assert [post["title"] for post in webhook.posts] == [f"daily/{DAY} published, quarantined"]


def test_drift_is_told(webhook: Webhook, tmp_path: Path) -> None:
    def columns(first: int) -> dict[str, Any]:
        label = {"type": "string", "rows": 10, "nulls": 0, "constant": False}
        return {"label": {**label, "classes": {"cat": first, "dog": 10 - first}}}

    publish(tmp_path, receipt_of("2026-01-08", columns(9)))
    end(told(tmp_path, {"on": ["drift"]}), tmp_path, columns=columns(1))
    [post] = webhook.posts
    assert post["events"] == ["drift"]
    assert "drift in label" in post["sentence"]


def test_a_failure_is_told_once_and_its_text_is_harmless(webhook: Webhook, tmp_path: Path) -> None:
    with pytest.raises(StageFailed):
        end(told(tmp_path), tmp_path, StageFailed("<!channel> \x1b[31mbad\u202e \ud800\nrow", "infer"))
    [post] = webhook.posts
    assert (post["events"], post["status"]) == (["failed"], "failed")
    assert "the run failed in infer" in post["sentence"]
    assert not any(bad in post["text"] for bad in ("<", "\x1b", "\u202e"))
    assert "rows_in" not in post
    assert Path(post["report"]).exists()


def test_a_run_at_its_budget_is_told_apart_from_other_failures(webhook: Webhook, tmp_path: Path) -> None:
    job = told(tmp_path, {"on": ["budget"]})
    with pytest.raises(StageFailed):
        end(job, tmp_path, StageFailed("bad", "infer"))
    with pytest.raises(BudgetReached):
        end(job, tmp_path, BudgetReached("budget.cost: expected at most 5"))
    [post] = webhook.posts
    assert (post["events"], post["title"]) == (["budget"], f"daily/{DAY} failed")
    assert "budget.cost: expected at most 5" in post["sentence"]


def test_a_run_that_fails_before_it_holds_its_partition_is_told_too(webhook: Webhook, tmp_path: Path) -> None:
    with pytest.raises(InputError), noticed(told(tmp_path), DAY, "job.yaml", False):
        raise InputError("expected a model, found none")
    [post] = webhook.posts
    assert (post["events"], post["sentence"]) == (["failed"], "failed in ingest: expected a model, found none")
    assert post["report"] is None


def test_samples_cancelled_runs_and_runs_without_work_are_not_told(webhook: Webhook, tmp_path: Path) -> None:
    job = told(tmp_path)
    end(job, tmp_path, sample=True)
    with pytest.raises(StageFailed):
        end(job, tmp_path, StageFailed("bad", "infer"), sample=True)
    with pytest.raises(KeyboardInterrupt):
        end(job, tmp_path, KeyboardInterrupt())
    with noticed(job, DAY, "job.yaml", False):
        pass
    assert webhook.posts == []


def test_a_run_that_published_stays_published_if_its_message_is_interrupted(
    webhook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def interrupt() -> None:
            with server.accept()[0] as connection:
                _thread.interrupt_main()
                connection.recv(65536)

        threading.Thread(target=interrupt, daemon=True).start()
        monkeypatch.setenv("OPS_HOOK", f"http://127.0.0.1:{server.getsockname()[1]}")
        end(told(tmp_path), tmp_path)


def test_a_receiver_that_refuses_is_a_warning_and_the_next_one_is_told(
    webhook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DEAD_HOOK", webhook.url.replace("http://", "http://user:pw@").replace("127.0.0.1", "0.0.0.1"))
    end(told(tmp_path, {"on": ["published"], "webhook": "${DEAD_HOOK}"}, {"on": ["published"]}), tmp_path)
    assert len(webhook.posts) == 1
    assert "notice not sent: the webhook ${DEAD_HOOK} did not take the message: Connect" in caplog.text
    assert webhooks.SECRET not in caplog.text


@pytest.mark.parametrize("error", [None, StageFailed("bad", "infer")], ids=["published", "failed"])
def test_which_messages_were_sent_is_kept_beside_the_report(
    webhook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setenv("DEAD_HOOK", "http://127.0.0.1:1/")
    job = told(tmp_path, {"on": ALL, "webhook": "${DEAD_HOOK}"}, {"on": ALL})
    with contextlib.suppress(StageFailed):
        end(job, tmp_path, error)
    [file] = tmp_path.glob("**/reports/*.json")
    facts = json.loads(file.read_text())
    assert facts["notices"] == {"the webhook ${DEAD_HOOK}": "not sent", "the webhook ${OPS_HOOK}": "sent"}
    assert facts["verdict"] == ("no" if error else "trust")
