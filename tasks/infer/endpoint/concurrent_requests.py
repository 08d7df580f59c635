"""Requests of several threads to one endpoint, each at most once per answer that the log keeps.

One request may have several rows. The log has the answer of each row under the row's own key, so that no row is paid
again if its neighbours change. If the endpoint refuses such a request, each half is requested, down to a single row.
"""

import asyncio
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, Protocol

from overnight.tasks.errors import BudgetReached, RowError
from overnight.tasks.infer.endpoint.account import NoAccount
from overnight.tasks.infer.endpoint.client import A, Body, Dialect, Endpoint, Limits
from overnight.tasks.infer.endpoint.earlier_answers import NoEarlier
from overnight.tasks.infer.endpoint.fallback import Fallback
from overnight.tasks.infer.endpoint.response_log import NoLog, key_of
from overnight.tasks.infer.endpoint.transport import Transport
from overnight.tasks.workers.spending import Amount, Paid

PriceOf = Callable[[float, float, float], Amount]  # of tokens of the prompt, of the answer, and of the prompt's cached


class Grouping(Protocol[A]):
    """The way of a dialect to put several rows into one request. A row has the body of a request for it alone."""

    def fits(self, bodies: Sequence[Body]) -> bool:
        """Return True if these rows may be in one request."""

    def joined(self, bodies: Sequence[Body]) -> Body:
        """Return the body of one request for these rows."""

    def parts(self, answer: A, bodies: Sequence[Body]) -> Sequence[A | None]:
        """Return the answer of each row in the answer of a request; None if it is not certain which one it is.

        Rows with None are requested again. A single row always has an answer.
        """


class Alone(Grouping[A]):
    """One request for each row, as for chats."""

    def fits(self, bodies: Sequence[Body]) -> bool:
        return False

    def joined(self, bodies: Sequence[Body]) -> Body:
        return bodies[0]

    def parts(self, answer: A, bodies: Sequence[Body]) -> Sequence[A | None]:
        return [answer]


@dataclass(frozen=True)
class Row:
    """A row to request: its id, the key of its answer in the log, and the body that it has alone."""

    id: str
    key: str
    body: Body


class ConcurrentRequests(Generic[A]):
    """Sends the requests of several threads to one endpoint, by an event loop in a thread of its own."""

    def __init__(
        self,
        dialect: Dialect[A],
        transports: Sequence[Transport],
        limits: Limits,
        log: NoLog,
        *,
        grouping: Grouping[A],
        earlier: NoEarlier[A],
        account: NoAccount,
        price_of: PriceOf,
    ) -> None:
        self._dialect, self._log, self._loop = dialect, log, asyncio.new_event_loop()
        self._endpoint: Endpoint[A] | Fallback[A]
        if len(transports) > 1:
            self._endpoint = Fallback(dialect, transports, limits)
        else:
            self._endpoint = Endpoint(dialect, transports[0], limits)
        self._grouping, self._earlier = grouping, earlier
        self._account, self._price_of = account, price_of
        self._slots = asyncio.Semaphore(limits.concurrent_requests)  # a claim is for a request that can be sent now
        self._calls, self._lock = 0, threading.Lock()  # the calls under way
        self._counters: Counter[str] = Counter()
        thread = threading.Thread(target=_run, args=(self._loop, transports), daemon=True, name="requests")
        thread.start()
        # The thread has no reference to this object, so it ends with it: a process may load many models.
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop).atexit = False

    def earlier_answer(self) -> A | None:
        """Return an answer that an earlier process of the run has got; None without one."""
        fields = self._log.first()
        return self._dialect.kept(fields) if fields else None

    def counters(self) -> Mapping[str, float]:
        """Return the tokens of all new answers, as `engine_counters.py` names them; none if they are not counted."""
        return dict(self._counters)

    def answers(self, row_ids: Sequence[str], bodies: Sequence[Body | A | Exception]) -> list[A | Exception]:
        """Return for each row its answer, new or known, or its own `RowError`. Raise other failures.

        An answer or an exception in place of a body is returned as it is.
        """
        self._count(1)
        try:
            future = asyncio.run_coroutine_threadsafe(self._answers(row_ids, bodies), self._loop)
            answers = future.result()
        except BaseException:
            self._count(-1)
            self._flush(now=True)
            raise
        self._flush(now=self._count(-1) == 0)  # this call may be the last one
        return answers

    def _count(self, more: int) -> int:
        with self._lock:
            self._calls += more
            return self._calls

    def _flush(self, now: bool) -> None:
        self._log.flush(now)
        self._earlier.flush(now)

    async def _answers(self, row_ids: Sequence[str], bodies: Sequence[Body | A | Exception]) -> list[A | Exception]:
        answers: list[A | Exception | None] = []
        rows: list[Row] = []
        for row_id, body in zip(row_ids, bodies, strict=True):
            answer: A | Exception | None = None
            if isinstance(body, dict):
                rows.append(Row(row_id, key_of(row_id, body), body))
            else:
                answer = body
            answers.append(answer)
        new_answers = iter(await self._of_rows(rows))
        return [next(new_answers) if answer is None else answer for answer in answers]

    async def _of_rows(self, rows: Sequence[Row]) -> list[A | Exception]:
        """Return the answers of the log and of earlier runs, and of requests for the other rows."""
        answers: dict[str, A | Exception] = {}
        missing: dict[str, Row] = {}
        kept_answers = await asyncio.gather(*map(self._kept_answer, rows))
        for row, answer in zip(rows, kept_answers, strict=True):
            if answer is None:
                missing[row.key] = row
            else:
                answers[row.key] = answer
        tasks = [asyncio.ensure_future(self._request(group)) for group in self._groups(missing.values())]
        try:
            for group_answers in await asyncio.gather(*tasks):
                answers |= group_answers
        finally:
            for task in tasks:
                task.cancel()  # after an error that is not a row's fault
        await self._account.told()
        for outcome in answers.values():
            if isinstance(outcome, BudgetReached):  # only now: the requests under way have their answers
                raise outcome
        return [answers[row.key] for row in rows]

    async def _kept_answer(self, row: Row) -> A | None:
        if fields := self._log.find(row.key):
            return self._dialect.kept(fields)
        return await self._earlier.find(row.key, row.id, row.body)

    def _groups(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        group: list[Row] = []
        for row in rows:
            if group and not self._grouping.fits([member.body for member in [*group, row]]):
                yield group
                group = []
            group.append(row)
        if group:
            yield group

    async def _request(self, rows: Sequence[Row]) -> dict[str, A | Exception]:
        """Return the answers of `rows` by their keys, from one request, or from several if that shows a row's fault."""
        try:
            async with self._slots:
                answers = await self._claimed_answers(rows)
        except BudgetReached as error:
            return {row.key: error for row in rows}
        except RowError as error:
            if len(rows) == 1:
                return {rows[0].key: error}
            return await self._in_halves(rows)
        missing = [row for row in rows if row.key not in answers]
        return answers | await self._in_halves(missing)

    async def _claimed_answers(self, rows: Sequence[Row]) -> dict[str, A | Exception]:
        """Return the answers of one request that the budget allows. The log has them before the account is settled."""
        body = self._grouping.joined([row.body for row in rows])
        tokens = self._dialect.most_tokens(body)
        amounts = self._price_of(tokens, 0, 0), self._price_of(0, tokens, 0)
        most = Paid(len(rows), max(amounts, key=lambda amount: amount.cost))
        await self._account.claim(most)
        amount = None
        try:
            answer = await self._endpoint.answer(body)
            amount = self._amount(answer, most.amount)
            self._count_tokens(answer)
            return self._kept(rows, answer)
        finally:
            self._account.settle(most, amount)

    def _count_tokens(self, answer: A) -> None:
        """Count the tokens of an answer; its prompt counts for the prefix cache if the endpoint reports its hits."""
        if answer.prompt_tokens is None or answer.completion_tokens is None:
            return
        self._counters.update(prompt_tokens=answer.prompt_tokens, generated_tokens=answer.completion_tokens)
        cached_tokens = getattr(answer, "cached_tokens", None)
        if cached_tokens is not None:
            self._counters.update(prefix_tokens=answer.prompt_tokens, cached_tokens=cached_tokens)

    def _kept(self, rows: Sequence[Row], answer: A) -> dict[str, A | Exception]:
        """Put the certain answers of a request into the log, and return them by their keys."""
        answers: dict[str, A | Exception] = {}
        parts = self._grouping.parts(answer, [row.body for row in rows])
        for row, part in zip(rows, parts, strict=True):
            if part is not None:
                self._log.add(row.key, asdict(part), self._earlier.note(row.id, row.body, part))
                answers[row.key] = part
        return answers

    async def _in_halves(self, rows: Sequence[Row]) -> dict[str, A | Exception]:
        """Return the answers of `rows` from requests for each half, one after the other."""
        answers: dict[str, A | Exception] = {}
        middle = (len(rows) + 1) // 2
        for half in (rows[:middle], rows[middle:]):
            if half:
                answers |= await self._request(half)
        return answers

    def _amount(self, answer: A, most: Amount) -> Amount:
        """Return what an answer cost; its maximum if the endpoint did not count its tokens."""
        prompt, completion = answer.prompt_tokens, answer.completion_tokens
        if prompt is None or completion is None:
            return most
        return self._price_of(prompt, completion, getattr(answer, "cached_tokens", None) or 0)


def _run(loop: asyncio.AbstractEventLoop, transports: Sequence[Transport]) -> None:
    """Run a loop until it is stopped, and close the connections."""
    loop.run_forever()
    for transport in transports:
        loop.run_until_complete(transport.close())
    loop.close()
