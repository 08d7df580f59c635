"""Files that runs leave to later runs. Many jobs may add to a folder and read it at the same time.

A writer adds two files, and nothing changes a file: the data, which consists of members, and `.npy` with the key and
member of each value. The index comes last, so a value without an index is not read. Names begin with a time.
"""

import contextlib
import functools
import io
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from gzip import BadGzipFile
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from overnight.tasks.storage.location import Location

MEMBERS_IN_MEMORY = 64
INDEX = ".npy"
ENTRY = np.dtype([("key", np.uint64), ("start", np.int64), ("length", np.int32)])
MEMBER = np.dtype([("start", np.int64), ("length", np.int32), ("file", np.int32)])
DAMAGE = (EOFError, ValueError, KeyError, TypeError, zlib.error, BadGzipFile, pa.ArrowException)
TIME = "%Y%m%dT%H%M%S"

Content = TypeVar("Content")  # of a member
Place = tuple[int, int, int]  # of a member: the number of its file, its first byte, and its length

_log = logging.getLogger("overnight.reuse")


class KeptFiles(Generic[Content]):
    """Finds members in folders by 64 bits of a key. The index takes 24 bytes of memory per key.

    `ending` is that of the data files, `oldest` is in seconds since 1970, and `read` returns a member's content.
    """

    def __init__(
        self, folders: Iterable[Location], ending: str, oldest: float, read: Callable[[bytes], Content]
    ) -> None:
        self._ending, self._oldest, self._read = ending, oldest, read
        self.member = functools.lru_cache(MEMBERS_IN_MEMORY)(self._read_member)
        self._locks = [threading.Lock() for _ in range(MEMBERS_IN_MEMORY)]  # so that a member is read once
        self._files: list[Location] = []
        keys, members = [np.empty(0, np.uint64)], [np.empty(0, MEMBER)]
        for folder in folders:
            for own_keys, own_members in self._read_indices(folder):
                keys.append(own_keys)
                members.append(own_members)
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys, kind="stable")
        self._keys, self._members = all_keys[order], np.concatenate(members)[order]

    def __len__(self) -> int:
        return len(self._keys)

    def places(self, number: np.uint64) -> list[Place]:
        """Return the members that may have the key with these first 64 bits; those of an older file come first."""
        first, stop = self._keys.searchsorted(number), self._keys.searchsorted(number, "right")
        return [(file, start, length) for start, length, file in self._members[first:stop].tolist()]

    def at(self, place: Place) -> Content | None:
        """Return the content of a member; None if it is damaged or was removed."""
        with self._locks[hash(place) % len(self._locks)]:
            return self.member(*place)

    def _read_indices(self, folder: Location) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        names = [name for name in folder.names() if name.endswith(INDEX) and not is_older(name, self._oldest)]
        for name, content in folder.read_each(names).items():
            try:
                own = read_index(content)
            except DAMAGE as error:
                _log.warning("%s: the file is damaged, so its answers are not reused: %s", folder / name, error)
                continue
            members = np.empty(len(own), MEMBER)
            members["start"], members["length"], members["file"] = own["start"], own["length"], len(self._files)
            self._files.append(folder / (name.removesuffix(INDEX) + self._ending))
            yield np.ascontiguousarray(own["key"]), members

    def _read_member(self, file: int, start: int, length: int) -> Content | None:
        try:
            return self._read(self._files[file].read_range(start, length))
        except FileNotFoundError:  # it became too old for the job that wrote it
            return None
        except DAMAGE as error:
            message = "%s: the file is damaged at byte %d, so these answers are not reused: %s"
            _log.warning(message, self._files[file], start, error)
            return None


def read_index(content: bytes) -> np.ndarray:
    """Return the entries of an index, with the type `ENTRY`. Raise `ValueError` for other content."""
    entries: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
    if entries.dtype != ENTRY:
        raise ValueError(f"expected an index, found numbers of {entries.dtype}")
    return entries


def count_keys(folder: Location, oldest: float) -> int:
    """Return the number of keys in a folder, by the sizes of its indices. A key that is kept twice counts twice."""
    count = 0
    with contextlib.suppress(FileNotFoundError):
        for file in folder.files():
            name = file.path.rpartition("/")[2]
            if name.endswith(INDEX) and not is_older(name, oldest):
                count += max(file.size - len(_index(np.empty(0, ENTRY))), 0) // ENTRY.itemsize
    return count


def keep_files(folder: Location, name: str, ending: str, members: Iterable[tuple[np.ndarray, bytes]]) -> int:
    """Write members, each with the first 64 bits of its keys, and return the number of keys.

    The same name replaces its files.
    """
    entries, start = [np.empty(0, ENTRY)], 0
    with (folder / f"{name}{ending}").writing() as file:
        for numbers, content in members:
            file.write(content)
            own = np.empty(len(numbers), ENTRY)
            own["key"], own["start"], own["length"] = numbers, start, len(content)
            entries.append(own)
            start += len(content)
    (folder / f"{name}{INDEX}").write_bytes(_index(np.concatenate(entries)))
    return sum(map(len, entries))


def _index(entries: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, entries)  # its header is as long for any number of entries
    return content.getvalue()


def is_older(name: str, oldest: float) -> bool:
    """Return True if the publish of this file was before `oldest`, in seconds since 1970. Its answers are older."""
    with contextlib.suppress(ValueError):
        return datetime.strptime(name[:15], TIME).replace(tzinfo=UTC).timestamp() < oldest
    return False
