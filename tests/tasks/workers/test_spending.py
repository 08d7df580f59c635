"""What a run may still request: by what answers cost, and by what is under way at several workers."""

import time

import pytest

from overnight.tasks.workers import spending
from overnight.tasks.workers.spending import Amount, Paid, Reply, Settled, Spending

MOST = Paid(1, Amount(10, 10.0))


def within(limits: dict[str, float], answers: int = 0, cost: float = 0.0, ends_at: float | None = None) -> Spending:
    return Spending(limits, ends_at, {"chat": Paid(answers, Amount(cost, cost))})


def test_requests_before_enough_answers_count_with_their_maximum_and_the_next_one_waits() -> None:
    run = within({"cost": 35.0})
    assert run.exchange("a", "chat", [], [MOST] * 5) == Reply(3)
    assert run.exchange("b", "chat", [], [MOST]) == Reply(0), "others under way may cost less"
    assert run.exchange("a", "chat", [Settled(MOST, Amount(2, 2.0))], []) == Reply(0)
    assert run.exchange("b", "chat", [], [MOST]) == Reply(1)


def test_requests_after_enough_answers_count_with_the_mean() -> None:
    run = within({"cost": 110.0}, answers=100, cost=100.0)
    assert run.exchange("a", "chat", [], [MOST] * 20).granted == 10


def test_a_request_for_several_rows_counts_with_the_mean_of_each() -> None:
    run, three = within({"cost": 110.0}, answers=100, cost=100.0), Paid(3, Amount(30, 30.0))
    assert run.exchange("a", "chat", [], [three] * 5).granted == 3
    assert run.exchange("a", "chat", [Settled(three, Amount(3, 3.0))] * 3, []) == Reply(0)
    assert run.total().answers == 109, "as the log counts them after a crash"
    assert not run.is_under_way


def test_a_request_is_refused_only_when_none_is_under_way_and_then_for_good() -> None:
    run = within({"cost": 15.0})
    assert run.exchange("a", "chat", [], [MOST, MOST]) == Reply(1)
    reply = run.exchange("a", "chat", [Settled(MOST, Amount(9, 9.0))], [MOST])
    assert reply.granted == 0
    assert "budget.cost: expected at most 15" in reply.refusal
    assert "found 9 spent" in reply.refusal
    assert run.exchange("b", "chat", [], [Paid(1, Amount(1, 1.0))]).refusal == reply.refusal


def test_tokens_have_a_limit_of_their_own_and_models_share_it() -> None:
    run = within({"tokens": 25.0})
    assert run.exchange("a", "chat", [], [MOST]) == Reply(1)
    assert run.exchange("a", "judge", [], [MOST] * 2) == Reply(1)


def test_a_request_without_an_answer_costs_nothing() -> None:
    run = within({"cost": 10.0})
    run.exchange("a", "chat", [], [MOST])
    assert run.exchange("a", "chat", [Settled(MOST, None)], [MOST]) == Reply(1)
    assert run.total() == Paid(0, Amount(0, 0.0))


def test_what_earlier_attempts_paid_counts() -> None:
    reply = within({"cost": 20.0}, answers=3, cost=15.0).exchange("a", "chat", [], [MOST])
    assert "3 answers are kept" in reply.refusal


def test_requests_of_a_silent_worker_count_as_paid_and_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    run = within({"cost": 25.0})
    run.exchange("dead", "chat", [], [MOST, MOST])
    later = time.monotonic() + spending.SILENT_SECONDS + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert "found 20 spent" in run.exchange("b", "chat", [], [MOST]).refusal


def test_nothing_is_sent_after_the_minutes() -> None:
    run = within({"minutes": 5.0}, ends_at=time.time() - 1)
    assert "budget.minutes: expected a run of at most 5 minutes" in run.exchange("a", "chat", [], [MOST]).refusal


def test_a_message_has_all_digits_of_what_was_spent() -> None:
    run = Spending({"tokens": 2e6}, None, {"chat": Paid(3, Amount(1_999_995, 0.1 + 0.2))})
    assert (
        "at most 2,000,000 for this partition, found 1,999,995 spent" in run.exchange("a", "chat", [], [MOST]).refusal
    )
