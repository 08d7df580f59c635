"""The objects below a prefix of S3, in the order of their keys. Several ranges of keys are listed concurrently.

S3 returns a thousand keys per request, in order, so one listing is a chain of requests. Longer listings are cut into
ranges at subfolders, which threads list side by side, a limited number of pages ahead of the reader. A range covers as
many folders as are expected to hold `KEYS_A_RANGE` keys, so small folders do not cost one request each.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from overnight.tasks.errors import InputError
from overnight.tasks.storage import s3_bucket
from overnight.tasks.storage.file_info import Entry, entry_of

RANGES_AT_ONCE = 8
PAGES_AHEAD = 24  # per range; an object takes about 400 bytes here, so 8 x 24 pages are 80 MB at most
KEYS_A_RANGE, FOLDERS_A_RANGE = 8_000, 250
FEW, DEEPEST = 8, 3  # if there are at most FEW folders, their subfolders are listed too, DEEPEST levels deep


def s3_entries(filesystem: Any, root: str, beginning: str = "") -> Iterator[Entry]:
    """Yield the entries below a bucket or `bucket/prefix`, in the order of keys, or `root` if it is an object.

    Their paths below `root` begin with `beginning`. Raise `InputError` if the store does not list in the order of keys.
    """
    bucket, key, _ = filesystem.split_path(root)
    prefix = f"{key}/" if key else ""
    after = ""
    if len(beginning) > 1:
        after = prefix + beginning[:-1]
    last, start = "", f"{bucket}/{prefix}{beginning}"
    for entry in _Listing(filesystem.bucket(bucket), prefix).entries(after):
        if entry.name <= last:
            raise InputError(f"{bucket}: expected a listing in the order of keys, found {entry.name} after {last}.")
        last = entry.name
        if last.startswith(start):
            yield entry
        elif last > start:
            return
    if not last and key and not beginning:
        with suppress(FileNotFoundError):
            yield entry_of(root, filesystem.info(root))


@dataclass(frozen=True)
class _Range:
    """The keys after the key `after` up to and including `last`, or to the end if `last` is empty."""

    after: str
    last: str
    folders: int


@dataclass
class _Listing:
    bucket: s3_bucket.Bucket
    prefix: str
    listed_folders: int = 0
    listed_keys: int = 0

    def entries(self, after: str) -> Iterator[Entry]:
        pages = self.bucket.pages(self.prefix, after)
        first = next(pages, [])
        yield from first
        if len(first) < s3_bucket.KEYS_A_PAGE:
            for page in pages:  # a store may return less than a page and still have more
                yield from page
            return
        listings: deque[Iterator[Entry]] = deque()
        pool = ThreadPoolExecutor(RANGES_AT_ONCE, thread_name_prefix="listing")
        try:
            for keys in self._ranges(self.bucket.key(first[-1])):
                listings.append(self._begun(pool, keys))
                if len(listings) > RANGES_AT_ONCE:
                    yield from listings.popleft()
            while listings:
                yield from listings.popleft()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _begun(self, pool: ThreadPoolExecutor, keys: _Range) -> Iterator[Entry]:
        """Return the entries of a range. A thread lists the first pages now, and the reader the others."""
        pages = self._pages(keys)
        beginning = pool.submit(lambda: list(islice(pages, PAGES_AHEAD)))

        def entries() -> Iterator[Entry]:
            for page in chain(beginning.result(), pages):
                yield from page

        return entries()

    def _ranges(self, after: str) -> Iterator[_Range]:
        folders = 1
        for cut in self._cuts(self.prefix, after, DEEPEST):
            if cut <= after:
                continue
            if folders < self._folders_a_range():
                folders += 1
                continue
            yield _Range(after, cut, folders)
            after, folders = cut, 1
        yield _Range(after, "", folders)

    def _cuts(self, prefix: str, after: str, depth: int) -> Iterator[str]:
        """Yield the key just before each folder below `prefix`, and before their subfolders if there are few."""
        for answer in self.bucket.answers(prefix, after, Delimiter="/"):
            folders = [info["Prefix"] for info in answer.get("CommonPrefixes", [])]
            has_few = depth and len(folders) <= FEW and not answer.get("IsTruncated")
            for folder in folders:
                yield s3_bucket.just_before(folder)
                if has_few:
                    yield from self._cuts(folder, "", depth - 1)
            if not folders:
                return

    def _folders_a_range(self) -> int:
        if not self.listed_folders:
            return 1
        return min(FOLDERS_A_RANGE, KEYS_A_RANGE * self.listed_folders // max(self.listed_keys, 1))

    def _pages(self, keys: _Range) -> Iterator[list[Entry]]:
        for page in self.bucket.pages(self.prefix, keys.after):
            inside = [entry for entry in page if not keys.last or self.bucket.key(entry) <= keys.last]
            self.listed_keys += len(inside)
            yield inside
            if len(inside) < len(page):
                break
        self.listed_folders += keys.folders
