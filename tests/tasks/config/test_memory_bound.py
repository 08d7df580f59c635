"""The bound of memory: what is inside it fails beyond, what is stored counts, and the process's own limit returns."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from overnight.tasks.config.memory_bound import FREE_BYTES, allow, bounded, each_within_bound, shortage

MORE = FREE_BYTES + 2**26


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def test_what_takes_more_fails_inside_and_not_outside() -> None:
    before = limit()
    with bounded(), pytest.raises(MemoryError) as raised:
        np.ones(MORE, np.uint8)
    assert "expected data that take at most 640 MiB" in shortage(raised.value)
    assert limit() == before
    np.empty(MORE, np.uint8)


def test_stored_bytes_count_as_soon_as_they_are_known() -> None:
    with bounded(2**24):
        np.empty(MORE, np.uint8)
    with bounded():
        allow(2**24)
        np.empty(MORE, np.uint8)


def test_each_item_has_the_whole_bound_and_the_consumer_has_none() -> None:
    held = []

    @each_within_bound
    def items() -> Iterator[np.ndarray]:
        yield from (np.empty(FREE_BYTES // 2, np.uint8) for _ in range(4))

    for item in items():
        held.append(item)
        np.empty(MORE, np.uint8)
    assert len(held) == 4


def test_bodies_of_several_threads_do_not_end_each_others_bound() -> None:
    before = limit()
    inside, end = threading.Event(), threading.Event()

    def other() -> None:
        with bounded():
            inside.set()
            end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with bounded():
        end.set()
        thread.join()
        with pytest.raises(MemoryError):
            np.ones(MORE, np.uint8)
    assert limit() == before


def test_a_forked_process_begins_without_a_bound() -> None:
    before = limit()
    with bounded():
        child = os.fork()
        if not child:
            os._exit(limit() != before)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_lower_limit_of_the_process_stays() -> None:
    code = "from overnight.tasks.config.memory_bound import *\nwith bounded(2**31): print(resource.getrlimit(2)[0])"
    command = ["bash", "-c", 'ulimit -d 4000000; exec "$0" -c "$1"', sys.executable, code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["4096000000"]
