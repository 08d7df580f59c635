"""Requests of several threads to one endpoint, each at most once per answer that the log keeps."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Generic

from overnight.tasks.errors import RowError
from overnight.tasks.infer.endpoint.client import A, Body, Dialect, Endpoint, Limits
from overnight.tasks.infer.endpoint.earlier_answers import NoEarlier
from overnight.tasks.infer.endpoint.response_log import NoLog, key_of
from overnight.tasks.infer.endpoint.transport import Transport


class ConcurrentRequests(Generic[A]):
    """Sends the requests of several threads to one endpoint, by an event loop in a thread of its own."""

    def __init__(
        self, dialect: Dialect[A], transport: Transport, limits: Limits, log: NoLog, earlier: NoEarlier[A]
    ) -> None:
        self._dialect, self._log, self._earlier = dialect, log, earlier
        self._endpoint, self._loop = Endpoint(dialect, transport, limits), asyncio.new_event_loop()
        self._calls, self._lock = 0, threading.Lock()  # the calls under way
        threading.Thread(target=self._loop.run_forever, daemon=True, name="requests").start()

    def answers(self, row_ids: Sequence[str], bodies: Sequence[Body]) -> list[A | Exception]:
        """Return for each row the answer of its request, or its own `RowError`.

        An answer that is in the log or of an earlier run is not requested. A failure that is not a row's is raised.
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

    async def _answers(self, row_ids: Sequence[str], bodies: Sequence[Body]) -> list[A | Exception]:
        rows = zip(row_ids, bodies, strict=True)
        tasks = [asyncio.ensure_future(self._answer(row_id, body)) for row_id, body in rows]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # after an error that is not a row's fault

    async def _answer(self, row_id: str, body: Body) -> A | Exception:
        key = key_of(row_id, body)
        if fields := self._log.find(key):
            return self._dialect.kept(fields)
        if answer := await self._earlier.find(key, row_id, body):
            return answer
        try:
            answer = await self._endpoint.answer(body)
        except RowError as error:
            return error
        self._log.add(key, asdict(answer), self._earlier.note(row_id, body, answer))
        return answer
