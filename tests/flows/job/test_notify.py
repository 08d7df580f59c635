"""What `notify` of a job file may say, and that it changes no result."""

import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.job.notify import Receiver
from overnight.flows.runs.run import describe_run
from tests.flows.job.jobs import SMALL, complaint

ON = (
    "notify: [{on: [failed], webhook: '${HOOK}'}, {on: [quarantined], block: slack-webhook/ops, quarantined_over: 0.1}]"
)


def test_receivers_are_read_and_change_neither_fingerprint_nor_results(write):
    plain, told = load_job(write(SMALL)), load_job(write(SMALL + ON))
    assert [receiver.name for receiver in told.receivers] == ["the webhook ${HOOK}", "slack-webhook/ops"]
    assert describe_run(plain, "2026-01-01").fingerprint == describe_run(told, "2026-01-01").fingerprint
    assert plain.result_settings() == told.result_settings()


def test_the_block_of_a_schedule_is_a_receiver_of_late_partitions(write):
    schedule = "schedule: {cron: '0 2 * * *', deadline: '06:00', notify: slack-webhook/ops}"
    assert load_job(write(SMALL + schedule)).receivers == [Receiver(on=["late"], block="slack-webhook/ops")]


@pytest.mark.parametrize(
    ("receiver", "sentence"),
    [
        ("{on: [failed]}", "expected either block or webhook, found neither"),
        ("{on: [failed], block: a/b, webhook: '${HOOK}'}", "expected either block or webhook, found both"),
        ("{on: [failed], webhook: 'https://hooks.example.org/T0/secret'}", "webhook"),
        ("{on: [], webhook: '${HOOK}'}", "on"),
        ("{on: [broken], webhook: '${HOOK}'}", "published"),
        ("{on: [failed], webhook: '${HOOK}', quarantined_over: 0.1}", "expected quarantined"),
        ("{on: [late], webhook: '${HOOK}'}", "expected a schedule with a deadline"),
    ],
)
def test_a_receiver_that_cannot_get_a_message_is_refused(write, receiver, sentence):
    message = complaint(write(f"{SMALL}notify: [{receiver}]"))
    assert sentence in message
    assert "notify" in message
