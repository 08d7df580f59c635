"""Several endpoints with the same model: the first that works answers.

A server that is down and a refused key lead to the next endpoint; a row's own fault does not. An
endpoint that failed gets requests again after `SECONDS_OF_REST`.
"""

import dataclasses
import logging
import time
from collections.abc import Sequence
from typing import Generic

from overnight.tasks.errors import AccessDenied, OvernightError, ServiceUnavailable
from overnight.tasks.infer.endpoint.client import A, Body, Dialect, Endpoint, Limits
from overnight.tasks.infer.endpoint.transport import Transport

SECONDS_OF_REST = 300.0

_log = logging.getLogger("overnight.endpoint")


class Fallback(Generic[A]):
    """A client of several endpoints in their order, for one event loop."""

    def __init__(self, dialect: Dialect[A], transports: Sequence[Transport], limits: Limits) -> None:
        # Each has its share of a row's time. All but the last give up after max_tries.
        share = limits.retry_timeout_seconds / len(transports)
        last = dataclasses.replace(limits, retry_timeout_seconds=share)
        first = dataclasses.replace(last, gives_up=True)
        self._urls = [transport.shown_url for transport in transports]
        self._endpoints = [Endpoint(dialect, transport, first) for transport in transports[:-1]]
        self._endpoints.append(Endpoint(dialect, transports[-1], last))
        self._rests_until = [0.0] * len(transports)

    async def answer(self, body: Body) -> A:
        """Return the answer of the first endpoint that works. Raise the error of the last one."""
        for number, endpoint in enumerate(self._endpoints[:-1]):
            if time.monotonic() < self._rests_until[number]:
                continue
            try:
                return await endpoint.answer(body)
            except (ServiceUnavailable, AccessDenied) as error:
                self._rest(number, error)
        return await self._endpoints[-1].answer(body)

    def _rest(self, number: int, error: OvernightError) -> None:
        if time.monotonic() >= self._rests_until[number]:
            _log.warning("%s: the requests go to %s: %s", self._urls[number], self._urls[number + 1], error)
        self._rests_until[number] = time.monotonic() + SECONDS_OF_REST
