"""Requests of several threads to one endpoint, each at most once per answer that the log keeps."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Generic

from overnight.tasks.errors import RowError
from overnight.tasks.infer.endpoint.client import A, Body, Dialect, Endpoint, Limits
from overnight.tasks.infer.endpoint.fallback import Fallback
from overnight.tasks.infer.endpoint.response_log import NoLog, key_of
from overnight.tasks.infer.endpoint.transport import Transport


class ConcurrentRequests(Generic[A]):
    """Sends the requests of several threads to one endpoint, by an event loop in a thread of its own."""

    def __init__(self, dialect: Dialect[A], transports: Sequence[Transport], limits: Limits, log: NoLog) -> None:
        self._dialect, self._log, self._loop = dialect, log, asyncio.new_event_loop()
        self._endpoint: Endpoint[A] | Fallback[A]
        if len(transports) > 1:
            self._endpoint = Fallback(dialect, transports, limits)
        else:
            self._endpoint = Endpoint(dialect, transports[0], limits)
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
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # after an error that is not a row's fault

    async def _answer(self, row_id: str, body: Body) -> A | Exception:
        key = key_of(row_id, body)
        if fields := self._log.find(key):
            return self._dialect.kept(fields)
        try:
            answer = await self._endpoint.answer(body)
        except RowError as error:
            return error
        self._log.add(key, asdict(answer))
        return answer
