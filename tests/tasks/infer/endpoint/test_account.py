"""Accounts of workers with one `Spending`: what is refused, what waits, and what is told when a worker ends."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from overnight.tasks.errors import BudgetReached, ServiceUnavailable
from overnight.tasks.infer.endpoint.account import Account
from overnight.tasks.workers.spending import Amount, Paid, Reply, Settled, Spending

MOST = Paid(1, Amount(10, 10.0))


def accounts(count: int, cost: float) -> tuple[Spending, list[Account]]:
    spending = Spending({"cost": cost}, None, {})
    return spending, [Account(partial(spending.exchange, f"worker {number}", "chat")) for number in range(count)]


async def request(account: Account, seconds: float = 0.01, cost: float = 4.0) -> bool:
    """Return True if a request was sent, and False if the budget refused it."""
    try:
        await account.claim(MOST)
    except BudgetReached:
        return False
    await asyncio.sleep(seconds)
    account.settle(MOST, Amount(1, cost))
    return True


def test_two_workers_send_what_the_budget_allows_and_then_all_are_refused() -> None:
    spending, both = accounts(2, cost=50.0)

    async def ask() -> list[bool]:
        return await asyncio.gather(*(request(account) for account in both for _ in range(30)))

    sent = asyncio.run(ask())
    assert sent.count(True) == 11, "the next request may cost 10 of the 6 that are left"
    assert spending.total() == Paid(11, Amount(11, 44.0))


def test_no_request_is_refused_while_another_one_is_under_way() -> None:
    _, [account] = accounts(1, cost=12.0)

    async def ask() -> tuple[bool, bool]:
        slow = asyncio.ensure_future(request(account, seconds=0.6, cost=1.0))
        await asyncio.sleep(0.1)
        quick = asyncio.ensure_future(request(account))
        await asyncio.sleep(0.3)
        assert not quick.done()
        return await slow, await quick

    assert asyncio.run(ask()) == (True, True)


def test_a_claim_that_is_given_up_leaves_nothing_under_way() -> None:
    spending, [account] = accounts(1, cost=100.0)

    async def ask() -> None:
        claim = asyncio.ensure_future(account.claim(MOST))
        await asyncio.sleep(0)
        claim.cancel()
        await asyncio.sleep(0.2)
        assert await request(account)
        await asyncio.sleep(0.2)

    asyncio.run(ask())
    assert not spending.is_under_way


def test_a_worker_that_has_told_its_requests_may_end() -> None:
    spending, [account] = accounts(1, cost=100.0)

    async def ask() -> Paid:
        await asyncio.gather(*(request(account) for _ in range(5)))
        await account.told()
        return spending.total()

    assert asyncio.run(ask()).answers == 5


def test_a_supervisor_without_counts_ends_the_try_of_the_run() -> None:
    def lost(settled: list[Settled], wanted: Sequence[Paid]) -> Reply | None:
        return None

    async def ask() -> None:
        await Account(lost).claim(MOST)

    with pytest.raises(ServiceUnavailable, match="lost its counts"):
        asyncio.run(ask())


def test_a_call_without_requests_does_not_ask_the_run() -> None:
    exchanges: list[int] = []

    def exchange(settled: list[Settled], wanted: Sequence[Paid]) -> Reply:
        exchanges.append(len(settled))
        return Reply(len(wanted))

    async def calls() -> int:
        account = Account(exchange)
        await account.told()
        before = len(exchanges)
        await request(account)
        await account.told()
        return before

    assert asyncio.run(calls()) == 0
    assert sum(exchanges) == 1
