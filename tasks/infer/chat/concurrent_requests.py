"""Concurrent requests to a chat endpoint from calls that wait: one event loop per worker, and a log of the answers."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.openai_client import Endpoint
from overnight.tasks.infer.chat.response_log import NoLog, key_of
from overnight.tasks.infer.chat.answer import Answer


class ConcurrentRequests:
    """Sends the requests of several threads to one endpoint, by an event loop in a thread of its own.

    `make_endpoint` makes the endpoint in that loop. `log` keeps the answers for a resumed run; a plain `NoLog` keeps
    nothing.
    """

    def __init__(self, make_endpoint: Callable[[], Endpoint], log: NoLog) -> None:
        self._log, self._loop = log, asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="asking").start()
        self._endpoint = self._in_loop(self._made(make_endpoint))

    def answers(self, row_ids: Sequence[str], bodies: Sequence[dict[str, Any]]) -> list[Answer | Exception]:
        """Send the request of each row, and return for each row its answer, or its own `RowError`.

        `bodies` has one request body per row. An answer that is in the log is not requested again. Raise
        `AccessDenied`, `JobError` or `ServiceUnavailable` for a failure that is not a row's fault.
        """
        try:
            found: list[Answer | Exception] = self._in_loop(self._all(row_ids, bodies))
        except BaseException:
            self._log.flush(now=True)
            raise
        self._log.flush()
        return found

    async def _all(self, row_ids: Sequence[str], bodies: Sequence[dict[str, Any]]) -> list[Answer | Exception]:
        tasks = [asyncio.ensure_future(self._one(*each)) for each in zip(row_ids, bodies, strict=True)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # after an error that is not a row's fault

    async def _one(self, row_id: str, body: dict[str, Any]) -> Answer | Exception:
        key = key_of(row_id, body)
        if known := self._log.find(key):
            return Answer(**known)
        try:
            answer = await self._endpoint.ask(body)
        except RowError as error:
            return error
        self._log.add(key, asdict(answer))
        return answer

    def _in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @staticmethod
    async def _made(make_endpoint: Callable[[], Endpoint]) -> Endpoint:
        return make_endpoint()
