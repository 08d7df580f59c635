"""Rows that are read one by one, and gathered to be worked on some at a time."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from overnight.tasks.ingest.reading.table_blocks import is_damage

T = TypeVar("T")
BYTES_AT_ONCE = 16 * 2**20


def size_of(item: bytes | Exception) -> int:
    """Bytes of an item; none of what is an error."""
    return len(item) if isinstance(item, bytes) else 0


def chunk(items: Iterator[T], rows: int, size_of: Callable[[T], int]) -> tuple[list[T], Exception | None]:
    """The next `rows` items, or fewer of `BYTES_AT_ONCE` together, none at the end; and the damage behind them."""
    found: list[T] = []
    size = 0
    try:
        for item in items:
            found.append(item)
            size += size_of(item)
            if len(found) == rows or size >= BYTES_AT_ONCE:
                break
    except Exception as error:
        if not is_damage(error):
            raise
        return found, error
    return found, None
