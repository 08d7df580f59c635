"""`overnight notify`: a test message to each receiver, and an exit code that shows if one did not take it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from overnight.cli.main import main
from overnight.flows.notices import sending
from tests import jobs
from tests import webhook as webhooks


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SECONDS_BETWEEN", 0.05)


def test_each_receiver_gets_a_test_message_and_one_that_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify = [{"on": ["failed"], "webhook": "${FIRST_HOOK}"}, {"on": ["published"], "webhook": "${SECOND_HOOK}"}]
    job = str(jobs.write_job(tmp_path / "job.yaml", notify=notify))
    with webhooks.webhook() as first, webhooks.webhook() as second:
        monkeypatch.setenv("FIRST_HOOK", first.url)
        monkeypatch.setenv("SECOND_HOOK", second.url)
        done = CliRunner().invoke(main, ["notify", job])
        assert (done.exit_code, done.stdout.count("took the message")) == (0, 2)
        assert [post["title"] for post in (*first.posts, *second.posts)] == ["small/test test"] * 2
        first.status = 500
        failed = CliRunner().invoke(main, ["notify", job])
    assert failed.exit_code == 1
    assert failed.stderr == "the webhook ${FIRST_HOOK} did not take the message: status 500\n"
    assert failed.stdout == "the webhook ${SECOND_HOOK} took the message\n"


def test_a_job_without_receivers_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["notify", str(jobs.write_job(tmp_path / "job.yaml"))])
    assert done.exit_code == 2
    assert "expected receivers in notify, found none" in done.stderr
