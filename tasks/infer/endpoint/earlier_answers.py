"""Answers of an endpoint across runs: which earlier ones serve this run, and which of its own serve later ones."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Generic

from overnight.tasks.infer.endpoint.client import A, Body, Dialect
from overnight.tasks.infer.endpoint.response_log import NoLog
from overnight.tasks.reuse.kept_answers import KeptAnswers
from overnight.tasks.reuse.settings import TOKENS, Reuse, reuse_key
from overnight.tasks.storage.location import Location


class NoEarlier(Generic[A]):
    """The interface of the answers of earlier runs. This class has none."""

    async def find(self, key: str, row_id: str, body: Body) -> A | None:
        """Return the answer of an earlier run to a row's request, or None. `key` is the request's key in the log."""
        return None

    def find_now(self, key: str, row_id: str, body: Body) -> A | None:
        """Return the same as `find`, without an event loop."""
        return None

    def note(self, row_id: str, body: Body, answer: A) -> dict[str, Any] | None:
        """Return what the log keeps with an answer so that later runs find it; None if it must not serve them."""
        return None

    def key_of(self, row_id: str, body: Body) -> str:
        """Return the key under which later runs find the answer; an empty text if they do not."""
        return ""

    def flush(self, now: bool = False) -> None:
        """Write the counts that are only in memory, as `NoLog.flush`."""


class EarlierAnswers(NoEarlier[A]):
    """The answers in the folder of `reuse`, of the endpoints at `address`.

    `counted` gets the tokens of each answer that this run uses. `is_drawn` returns True if the same body of another row
    may have another answer, and `is_whole` if an answer is complete and its row does not fail.
    """

    def __init__(
        self,
        reuse: Reuse,
        dialect: Dialect[A],
        address: str,
        is_drawn: Callable[[Body], bool],
        is_whole: Callable[[Body, A], bool],
        counted: NoLog,
    ) -> None:
        self._dialect, self._address, self._counted = dialect, address, counted
        self._is_drawn, self._is_whole = is_drawn, is_whole
        self._kept = KeptAnswers(Location(reuse.path), reuse.days)

    async def find(self, key: str, row_id: str, body: Body) -> A | None:
        return self._usable(key, body, await asyncio.to_thread(self._kept.find, self.key_of(row_id, body)))

    def find_now(self, key: str, row_id: str, body: Body) -> A | None:
        return self._usable(key, body, self._kept.find(self.key_of(row_id, body)))

    def _usable(self, key: str, body: Body, fields: Any) -> A | None:
        if fields is None:
            return None
        try:
            answer = self._dialect.kept(fields)
        except TypeError:  # of another version, whose answers have other fields
            return None
        if not self._is_whole(body, answer):  # the settings that are not in the body have changed
            return None
        tokens = {name: getattr(answer, name, None) for name in TOKENS}
        self._counted.add(key, tokens)
        return answer

    def note(self, row_id: str, body: Body, answer: A) -> dict[str, Any] | None:
        if not self._is_whole(body, answer):
            return None
        return {"key": self.key_of(row_id, body), "at": int(time.time())}

    def flush(self, now: bool = False) -> None:
        self._counted.flush(now)

    def key_of(self, row_id: str, body: Body) -> str:
        row = row_id if self._is_drawn(body) else None
        return reuse_key(type(self._dialect).__name__, self._address, body, row)
