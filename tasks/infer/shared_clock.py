"""Seconds of a device that several calls share: with two under way, half of each second is each one's."""

import contextlib
import threading
import time
from collections.abc import Iterator


class SharedClock:
    """Advances by a second's share while a second passes; calls are counted from `call`'s beginning to its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._seconds, self._seen = 0.0, time.perf_counter()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """While it is open, one more call has its share."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def __call__(self) -> float:
        """Seconds by which one call's share is measured: their difference between two moments within the call."""
        with self._lock:
            self._advance()
            return self._seconds

    def _count(self, more: int) -> None:
        with self._lock:
            self._advance()
            self._calls += more

    def _advance(self) -> None:
        now = time.perf_counter()
        self._seconds += (now - self._seen) / max(self._calls, 1)
        self._seen = now
