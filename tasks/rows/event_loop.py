"""The event loop for the user's async code. Each process has one, in its own thread, and it stays open between calls.

So the next calls can use a client that one call makes. Tasks that a call does not await continue in the loop.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Sequence
from functools import lru_cache
from typing import Any


def result_of(work: Awaitable[Any]) -> Any:
    """Run `work` to its end in the loop. Return its result, or raise its error."""
    return asyncio.run_coroutine_threadsafe(_finished(work), _loop(os.getpid())).result()


def results_of(works: Sequence[Awaitable[Any]]) -> list[Any]:
    """Run all `works` concurrently to their end. Return the result of each, or its exception, in order."""
    return list(result_of(_all_finished(works)))


async def _finished(work: Awaitable[Any]) -> Any:
    return await work


async def _all_finished(works: Sequence[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*works, return_exceptions=True)


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the loop of the process with this id: a forked process has no thread of its parent."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="async code").start()
    return loop
