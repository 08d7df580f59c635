"""Reading ahead: the same items, one of them early, and every error."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from overnight.tasks.config.memory_bound import FREE_BYTES, each_within_bound
from overnight.tasks.ingest.reading.read_units import prefetch


def test_the_next_item_is_made_while_the_caller_has_one() -> None:
    made = [threading.Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    found = prefetch(items())
    assert next(found) == 0
    assert made[1].wait(10), "the second is on its way"
    assert not made[2].wait(0.2), "and no other, which would take memory"
    assert list(found) == [1, 2, 3]


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    found = prefetch(items())
    assert next(found) == 1
    with pytest.raises(OSError, match="gone"):
        next(found)


def test_the_consumer_takes_the_memory_that_it_needs_while_the_next_item_is_made() -> None:
    begun, used = threading.Event(), threading.Event()

    @each_within_bound
    def items() -> Iterator[int]:
        yield 1
        begun.set()
        assert used.wait(30)
        yield 2

    found = prefetch(items())
    assert next(found) == 1
    assert begun.wait(30)
    assert len(np.ones(FREE_BYTES + 2**26, np.uint8)) > FREE_BYTES
    used.set()
    assert list(found) == [2]
