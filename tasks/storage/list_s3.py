"""The objects below a prefix of S3, in the order of their keys, while several ranges of keys are listed at a time.

S3 answers a thousand keys a request, in order, and one listing waits for each answer. Where one request does not do,
the prefixes below are asked for, and those that lie side by side become ranges, listed by threads that run ahead of who
takes the objects, but not far. Ranges follow each other, so that what comes out needs no sorting. As many prefixes make
a range as hold about `KEYS_A_RANGE` keys by what was met before: small ones do not cost a request each.

Objects that all lie in one folder have no prefixes to go by: one request follows another.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, Queue
from threading import Event
from typing import Any

from overnight.tasks.errors import InputError
from overnight.tasks.storage.file_info import Entry, entry_of

KEYS_A_PAGE = 1000  # more S3 does not give
RANGES_AT_ONCE = 8
PAGES_AHEAD = 24  # of a range; an object is about 400 bytes here, so 8 x 24 pages are 80 MB at most
KEYS_A_RANGE, PREFIXES_A_RANGE = 8_000, 250
FEW, DEEPEST = 8, 3  # prefixes that are looked into for more of them, and how often


def s3_entries(filesystem: Any, root: str) -> Iterator[Entry]:
    """What lies below `root`, which is `bucket/prefix`, or the object `root` itself where nothing does.

    Raises as s3fs's own listing, and `InputError` for a store that does not list in the order of keys.
    """
    bucket, key, _ = filesystem.split_path(root)
    last = ""
    for entry in _Listing(filesystem, bucket).below(f"{key}/" if key else ""):
        if entry.name <= last:
            raise InputError(f"{bucket}: expected a listing in the order of keys, found {entry.name} after {last}.")
        last = entry.name
        yield entry
    if not last and key:
        with suppress(FileNotFoundError):
            yield entry_of(root, filesystem.info(root))


@dataclass
class _Range:
    """The keys of prefixes side by side: those that begin with `prefix`, after `start` and before `stop` if given."""

    prefix: str
    start: str
    stop: str
    prefixes: int
    pages: Queue[list[Entry] | Exception | None] = field(default_factory=lambda: Queue(PAGES_AHEAD))

    def entries(self) -> Iterator[Entry]:
        """What is listed elsewhere, as it comes. Raises what ended the listing."""
        while (page := self.pages.get()) is not None:
            if isinstance(page, Exception):
                raise page
            yield from page


@dataclass
class _Listing:
    filesystem: Any
    bucket: str
    prefixes_done: int = 0
    keys_done: int = 0
    is_over: Event = field(default_factory=Event)

    def below(self, prefix: str) -> Iterator[Entry]:
        first = next(self._answers(prefix))
        if not first.get("IsTruncated"):
            yield from self._entries(first)
            return
        waiting: deque[list[Entry] | _Range] = deque()
        pool = ThreadPoolExecutor(RANGES_AT_ONCE, thread_name_prefix="listing")
        try:
            for piece in self._pieces(prefix, DEEPEST):
                if isinstance(piece, _Range):
                    pool.submit(self._list, piece)
                waiting.append(piece)
                if len(waiting) > RANGES_AT_ONCE:
                    yield from _entries_of(waiting[0])
                    waiting.popleft()
            while waiting:
                yield from _entries_of(waiting[0])
                waiting.popleft()
        finally:
            self.is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for piece in waiting:
                if isinstance(piece, _Range):
                    _make_room(piece.pages)

    def _pieces(self, prefix: str, depth: int) -> Iterator[list[Entry] | _Range]:
        """Objects of one request, and ranges that nobody lists yet, in the order of their keys."""
        pages = 0
        for answer in self._answers(prefix, Delimiter="/"):
            pages += 1
            below = [found["Prefix"] for found in answer.get("CommonPrefixes", [])]
            is_looked_into = depth and len(below) <= FEW and pages == 1 and not answer.get("IsTruncated")
            objects = {entry.name[len(self.bucket) + 1 :]: entry for entry in self._entries(answer)}
            met: list[Entry] = []
            beside: list[str] = []
            for key in sorted([*below, *objects]):
                if key in objects:
                    if beside:
                        yield self._range(prefix, beside)
                        beside = []
                    met.append(objects[key])
                    continue
                if met:
                    yield met
                    met = []
                if is_looked_into:
                    yield from self._pieces(key, depth - 1)
                    continue
                beside.append(key)
                if len(beside) >= self._prefixes_a_range():
                    yield self._range(prefix, beside)
                    beside = []
            if beside:
                yield self._range(prefix, beside)
            if met:
                yield met

    def _prefixes_a_range(self) -> int:
        if not self.prefixes_done:
            return 1
        return min(PREFIXES_A_RANGE, KEYS_A_RANGE * self.prefixes_done // max(self.keys_done, 1))

    def _range(self, prefix: str, beside: list[str]) -> _Range:
        if len(beside) == 1:
            return _Range(beside[0], "", "", 1)
        # "/" + 1 is "0". A key that is `start` itself stands for a folder.
        return _Range(prefix, beside[0], beside[-1][:-1] + "0", len(beside))

    def _list(self, piece: _Range) -> None:
        """Puts the range's pages, and None or what ended it, where who takes them waits."""
        try:
            start = {"StartAfter": piece.start} if piece.start else {}
            for answer in self._answers(piece.prefix, **start):
                page = list(self._entries(answer))
                self.keys_done += len(page)
                if piece.stop:
                    last, stop = page[-1].name if page else "", f"{self.bucket}/{piece.stop}"
                    page = [entry for entry in page if f"{self.bucket}/{piece.start}" < entry.name < stop]
                piece.pages.put(page)
                if self.is_over.is_set():
                    return
                if piece.stop and last >= stop:
                    break
            self.prefixes_done += piece.prefixes
            piece.pages.put(None)
        except Exception as error:
            piece.pages.put(error)

    def _answers(self, prefix: str, **arguments: str) -> Iterator[dict[str, Any]]:
        """The answers to a listing's requests, one page after another."""
        while True:
            about = {"Bucket": self.bucket, "Prefix": prefix, "MaxKeys": KEYS_A_PAGE, **self.filesystem.req_kw}
            answer = self.filesystem.call_s3("list_objects_v2", **about, **arguments)
            yield answer
            if not answer.get("IsTruncated"):
                return
            arguments = {name: value for name, value in arguments.items() if name == "Delimiter"}
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def _entries(self, answer: dict[str, Any]) -> Iterator[Entry]:
        for info in answer.get("Contents", []):
            yield entry_of(f"{self.bucket}/{info['Key']}", {"size": info["Size"], **info})


def _entries_of(piece: list[Entry] | _Range) -> Iterator[Entry]:
    yield from piece.entries() if isinstance(piece, _Range) else piece


def _make_room(pages: Queue[Any]) -> None:
    """So that who waits for room goes on, and sees that it is over before it puts anything else."""
    with suppress(Empty):
        while True:
            pages.get_nowait()
