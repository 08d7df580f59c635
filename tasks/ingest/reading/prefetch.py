"""Reading ahead: while one block is worked on, the next is fetched."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
END = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, of which the next is made by a thread while the caller has one. Raises what making one raises."""
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as thread:
        following = thread.submit(next, items, END)
        while (item := following.result()) is not END:
            following = thread.submit(next, items, END)
            yield item  # type: ignore[misc]
