"""Requests of several threads to one endpoint, each at most once per answer that the log keeps."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Generic

from overnight.tasks.errors import BudgetReached, RowError
from overnight.tasks.infer.endpoint.account import NoAccount
from overnight.tasks.infer.endpoint.client import A, Body, Dialect, Endpoint, Limits
from overnight.tasks.infer.endpoint.response_log import NoLog, key_of
from overnight.tasks.infer.endpoint.transport import Transport
from overnight.tasks.workers.spending import Amount

PriceOf = Callable[[float, float, float], Amount]  # of tokens of the prompt, of the answer, and of the prompt's cached


class ConcurrentRequests(Generic[A]):
    """Sends the requests of several threads to one endpoint, by an event loop in a thread of its own."""

    def __init__(
        self,
        dialect: Dialect[A],
        transport: Transport,
        limits: Limits,
        log: NoLog,
        account: NoAccount,
        price_of: PriceOf,
    ) -> None:
        self._dialect, self._log, self._loop = dialect, log, asyncio.new_event_loop()
        self._endpoint = Endpoint(dialect, transport, limits)
        self._account, self._price_of = account, price_of
        self._slots = asyncio.Semaphore(limits.concurrent_requests)  # a claim is for a request that can be sent now
        threading.Thread(target=self._loop.run_forever, daemon=True, name="requests").start()

    def answers(self, row_ids: Sequence[str], bodies: Sequence[Body]) -> list[A | Exception]:
        """Return for each row the answer of its request, or its own `RowError`.

        An answer that is in the log is not requested again. A failure that is not a row's is raised.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(self._answers(row_ids, bodies), self._loop)
            answers = future.result()
        except BaseException:
            self._log.flush(now=True)
            raise
        self._log.flush()
        return answers

    async def _answers(self, row_ids: Sequence[str], bodies: Sequence[Body]) -> list[A | Exception]:
        rows = zip(row_ids, bodies, strict=True)
        tasks = [asyncio.ensure_future(self._answer(row_id, body)) for row_id, body in rows]
        try:
            answers = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # after an error that is not a row's fault
        await self._account.told()
        for answer in answers:
            if isinstance(answer, BudgetReached):  # only now: the requests under way have their answers
                raise answer
        return answers

    async def _answer(self, row_id: str, body: Body) -> A | Exception:
        key = key_of(row_id, body)
        if fields := self._log.find(key):
            return self._dialect.kept(fields)
        async with self._slots:
            return await self._claimed_answer(key, body)

    async def _claimed_answer(self, key: str, body: Body) -> A | Exception:
        """Return the answer of a request that the budget allows, otherwise the error of the row or the budget."""
        tokens = self._dialect.most_tokens(body)
        most = max(self._price_of(tokens, 0, 0), self._price_of(0, tokens, 0), key=lambda amount: amount.cost)
        try:
            await self._account.claim(most)
        except BudgetReached as error:
            return error
        amount = None
        try:
            answer = await self._endpoint.answer(body)
            amount = self._amount(answer, most)
            self._log.add(key, asdict(answer))
        except RowError as error:
            return error
        finally:
            self._account.settle(most, amount)
        return answer

    def _amount(self, answer: A, most: Amount) -> Amount:
        """Return what an answer cost; its maximum if the endpoint did not count its tokens."""
        prompt, completion = answer.prompt_tokens, answer.completion_tokens
        if prompt is None or completion is None:
            return most
        return self._price_of(prompt, completion, getattr(answer, "cached_tokens", None) or 0)
