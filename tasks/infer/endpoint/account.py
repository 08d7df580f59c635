"""The account of one worker with its run: a request is claimed before it is sent, and settled when it has ended.

All claims and settlements of a moment travel together, in one exchange with the run's supervisor.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from overnight.tasks.errors import BudgetReached, ServiceUnavailable
from overnight.tasks.workers.spending import Amount, Paid, Reply, Settled

SECONDS_BETWEEN_CLAIMS = 0.2  # of a request that does not fit while others are under way
SECONDS_BETWEEN_SIGNS = 5.0  # of a worker whose requests are under way

Exchange = Callable[[list[Settled], Sequence[Paid]], Reply | None]


class NoAccount:
    """The interface of an account. This class counts nothing and refuses nothing."""

    async def claim(self, most: Paid) -> None:
        """Wait until a request that costs at most this may be sent. Raise `BudgetReached` if it may not."""

    def settle(self, most: Paid, amount: Amount | None) -> None:
        """Note that a claimed request has ended, and what it cost; None without an answer."""

    async def told(self) -> None:
        """Wait until the run knows of all requests that have ended."""


class Account(NoAccount):
    """An account for one event loop. `exchange` calls the run's supervisor, and may block."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._wanted: list[tuple[Paid, asyncio.Future[None]]] = []
        self._settled: list[Settled] = []
        self._waiting: list[asyncio.Future[None]] = []  # for the end of the next exchange
        self._under_way = 0
        self._news = asyncio.Event()
        self._teller: asyncio.Task[None] | None = None

    async def claim(self, most: Paid) -> None:
        grant = asyncio.get_running_loop().create_future()
        self._wanted.append((most, grant))
        self._tell()
        try:
            await grant
        except asyncio.CancelledError:
            if grant.done() and not grant.cancelled() and not grant.exception():
                self.settle(most, None)
            raise

    def settle(self, most: Paid, amount: Amount | None) -> None:
        self._settled.append(Settled(most, amount))
        self._under_way -= 1
        self._tell()

    async def told(self) -> None:
        if not self._settled and (self._teller is None or self._teller.done()):
            return  # all answers were known
        end = asyncio.get_running_loop().create_future()
        self._waiting.append(end)
        self._tell()
        await end

    def _tell(self) -> None:
        self._news.set()
        if self._teller is None or self._teller.done():
            self._teller = asyncio.ensure_future(self._exchange_all())

    async def _exchange_all(self) -> None:
        """Exchange claims and settlements until all requests have ended."""
        while self._wanted or self._settled or self._waiting or self._under_way:
            self._news.clear()
            ends, self._settled = self._settled, []
            waiting, self._waiting = self._waiting, []
            self._wanted = [(most, grant) for most, grant in self._wanted if not grant.done()]
            claims = list(self._wanted)
            try:
                reply = await asyncio.to_thread(self._exchange, ends, [most for most, _ in claims])
            except Exception as error:
                self._fail(error, waiting)
                return
            if reply is None:
                self._fail(ServiceUnavailable("the supervisor of this run has lost its counts", "infer"), waiting)
                return
            for end in waiting:
                if not end.done():
                    end.set_result(None)
            for most, grant in claims[: reply.granted]:
                self._under_way += 1
                if grant.done():
                    self.settle(most, None)
                else:
                    grant.set_result(None)
            self._wanted = self._wanted[reply.granted :]
            if reply.refusal:
                self._fail(BudgetReached(reply.refusal), [])
            seconds = SECONDS_BETWEEN_CLAIMS if self._wanted else SECONDS_BETWEEN_SIGNS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)

    def _fail(self, error: Exception, waiting: list[asyncio.Future[None]]) -> None:
        """End all claims, and callers that wait for an exchange, with an error."""
        for future in [*(grant for _, grant in self._wanted), *waiting]:
            if not future.done():
                future.set_exception(error)
        self._wanted = []
