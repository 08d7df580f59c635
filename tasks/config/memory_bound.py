"""Bound the memory that this process takes for data of others, whose size shows only when it is unpacked.

`bounded` sets the kernel's limit for the data of a process (RLIMIT_DATA). Every library then fails at the limit, with a
`MemoryError` or by the end of the process, and both cost the row. Stored bytes count, so that only data that unpack to
much more than their size fail. macOS has no such limit: there, nothing is bounded.
"""

import contextlib
import functools
import math
import os
import resource
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
FREE_BYTES, BYTES_A_BYTE = 640 * 2**20, 8  # what any data may take, and more for each byte that is stored
MOST_STORED = 2**32  # a file with holes, or a false header, has any size
SIZES = "/proc/self/statm"  # https://man7.org/linux/man-pages/man5/proc_pid_statm.5.html
PAGE = resource.getpagesize()


class _Limits:
    """The limits, in bytes, of the bodies that run now, and the limit that the process has without them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: dict[object, float] = {}
        self._usual = resource.getrlimit(resource.RLIMIT_DATA)

    def add(self, body: object, stored: float) -> None:
        with self._lock:
            if not self._limits:
                self._usual = resource.getrlimit(resource.RLIMIT_DATA)
            self._limits[body] = _data_bytes() + FREE_BYTES + _most(stored)
            self._apply()

    def remove(self, body: object) -> None:
        with self._lock:
            self._limits.pop(body, None)
            self._apply()

    def raise_all(self, stored: float) -> None:
        with self._lock:
            for body in self._limits:
                self._limits[body] += _most(stored)
            if self._limits:
                self._apply()

    def forget(self) -> None:
        """Begin without limits in a forked process, whose parent may have been inside a body."""
        self._lock = threading.Lock()
        if self._limits:
            self._limits.clear()
            self._apply()

    def _apply(self) -> None:
        usual, most = self._usual
        limits = [limit for limit in (usual, most) if limit != resource.RLIM_INFINITY]
        largest = max(self._limits.values(), default=math.inf)
        if largest < math.inf:
            limits.append(int(largest))
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits, default=usual), most))


def _most(stored: float) -> float:
    """Return the bytes that data may take beside `FREE_BYTES`."""
    return stored if math.isinf(stored) else BYTES_A_BYTE * min(stored, MOST_STORED)


def _data_bytes() -> int:
    with open(SIZES) as file:
        return int(file.read().split()[5]) * PAGE


_limits = _Limits()
os.register_at_fork(after_in_child=_limits.forget)


@contextlib.contextmanager
def bounded(stored: float = 0) -> Iterator[None]:
    """Let the body take `FREE_BYTES`, and `BYTES_A_BYTE` for each of the `stored` bytes. Infinite bytes set no bound.

    Bodies of several threads, or inside each other, have the largest limit of all. `bounded()` can decorate a function.
    """
    if not os.path.exists(SIZES):
        yield
        return
    body = object()
    _limits.add(body, stored)
    try:
        yield
    finally:
        _limits.remove(body)


def each_within_bound(generator: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Return the generator function, which makes each item inside `bounded`. The caller's use does not count."""

    @functools.wraps(generator)
    def items(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        inner = generator(*args, **kwargs)
        while True:
            with bounded():
                try:
                    item = next(inner)
                except StopIteration:
                    return
            yield item

    return items


def allow(stored: int) -> None:
    """Let the bodies that run now take more memory, because they begin to read `stored` bytes."""
    _limits.raise_all(stored)


def shortage(error: MemoryError) -> str:
    """Return the reason of a row or file that took more memory than it may, or than the machine has."""
    bound = f"{FREE_BYTES // 2**20} MiB of memory and {BYTES_A_BYTE} times its stored bytes"
    detail = str(error).strip().rstrip(".")
    return f"expected data that take at most {bound}, found more" + f": {detail}" * bool(detail)
