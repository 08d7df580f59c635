"""The answers that a folder keeps for later runs. Many jobs may add to it and read it at the same time.

A publish adds two files, and nothing changes a file: `<job>/<time>-<generation>-<model>.jsonl.gz` with an answer per
line, in gzip members of at most 250 lines, and `.npy` with the key and member of each answer. The index comes last,
so an answer without an index is not read.
"""

import contextlib
import functools
import gzip
import io
import itertools
import json
import logging
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from overnight.tasks.storage.location import Location

ANSWERS_A_MEMBER, BYTES_A_MEMBER = 250, 2**18  # of JSON, before compression
MEMBERS_IN_MEMORY = 64
ANSWERS, INDEX = ".jsonl.gz", ".npy"
ENTRY = np.dtype([("key", np.uint64), ("start", np.int64), ("length", np.int32)])
MEMBER = np.dtype([("start", np.int64), ("length", np.int32), ("file", np.int32)])
DAMAGE = (EOFError, ValueError, KeyError, TypeError, zlib.error, gzip.BadGzipFile)
TIME = "%Y%m%dT%H%M%S"

Line = dict[str, Any]  # "key", "answer", and "at", the second of the answer

_log = logging.getLogger("overnight.reuse")


class KeptAnswers:
    """Finds answers of the last `days` days in a folder. The index takes 24 bytes of memory per answer."""

    def __init__(self, folder: Location, days: float) -> None:
        self._oldest = time.time() - days * 86400
        self._member = functools.lru_cache(MEMBERS_IN_MEMORY)(self._read_member)
        self._locks = [threading.Lock() for _ in range(MEMBERS_IN_MEMORY)]  # so that a member is read once
        self._files: list[Location] = []
        keys, members = [np.empty(0, np.uint64)], [np.empty(0, MEMBER)]
        for job in folder.names():
            for own_keys, own_members in self._read_indices(folder / job):
                keys.append(own_keys)
                members.append(own_members)
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys, kind="stable")
        self._keys, self._members = all_keys[order], np.concatenate(members)[order]

    def find(self, key: str) -> Any:
        """Return the newest answer with this key, or None."""
        number, newest = np.uint64(_number(key)), None
        first, stop = self._keys.searchsorted(number), self._keys.searchsorted(number, "right")
        for start, length, file in self._members[first:stop].tolist():
            member = file, start, length
            with self._locks[hash(member) % len(self._locks)]:
                line = self._member(*member).get(key)
            if line and line["at"] >= max(self._oldest, newest["at"] if newest else 0):
                newest = line
        return newest and newest["answer"]

    def _read_indices(self, job: Location) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        names = [name for name in job.names() if name.endswith(INDEX) and not is_older(name, self._oldest)]
        for name, content in job.read_each(names).items():
            try:
                own = np.load(io.BytesIO(content), allow_pickle=False)
                if own.dtype != ENTRY:
                    raise ValueError(f"expected an index, found numbers of {own.dtype}")
            except DAMAGE as error:
                _log.warning("%s: the file is damaged, so its answers are not reused: %s", job / name, error)
                continue
            members = np.empty(len(own), MEMBER)
            members["start"], members["length"], members["file"] = own["start"], own["length"], len(self._files)
            self._files.append(job / (name.removesuffix(INDEX) + ANSWERS))
            yield np.ascontiguousarray(own["key"]), members

    def _read_member(self, file: int, start: int, length: int) -> Mapping[str, Line]:
        """Return the lines of a member by their keys; none if it is damaged or was removed."""
        try:
            lines = map(json.loads, gzip.decompress(self._files[file].read_range(start, length)).splitlines())
            return {line["key"]: {"answer": line["answer"], "at": line["at"]} for line in lines}
        except FileNotFoundError:  # it became too old for the job that wrote it
            return {}
        except DAMAGE as error:
            message = "%s: the file is damaged at byte %d, so these answers are not reused: %s"
            _log.warning(message, self._files[file], start, error)
            return {}


def keep(folder: Location, name: str, lines: Iterable[Line]) -> int:
    """Write the answers of a publish under `name`, and return their number. The same name replaces its files."""
    members = _members(lines)
    first = next(members, None)
    if first is None:
        return 0
    entries, start = [], 0
    with (folder / f"{name}{ANSWERS}").writing() as file:
        for member in itertools.chain([first], members):
            content = gzip.compress(b"".join(member.values()), compresslevel=1, mtime=0)
            file.write(content)
            entries.append(np.array([(_number(key), start, len(content)) for key in member], ENTRY))
            start += len(content)
    index = io.BytesIO()
    np.save(index, np.concatenate(entries))
    (folder / f"{name}{INDEX}").write_bytes(index.getvalue())
    return sum(map(len, entries))


def remove_old(folder: Location, days: float) -> None:
    """Remove the files of one job that are older than `days` days, each index first."""
    oldest = time.time() - days * 86400
    for name in reversed(folder.names()):
        if name.endswith((ANSWERS, INDEX)) and is_older(name, oldest):
            (folder / name).remove()


def is_older(name: str, oldest: float) -> bool:
    """Return True if the publish of this file was before `oldest`, in seconds since 1970. Its answers are older."""
    with contextlib.suppress(ValueError):
        return datetime.strptime(name[:15], TIME).replace(tzinfo=UTC).timestamp() < oldest
    return False


def _members(lines: Iterable[Line]) -> Iterator[dict[str, bytes]]:
    """Yield the lines as JSON by their keys, in groups of `ANSWERS_A_MEMBER` or `BYTES_A_MEMBER`."""
    member: dict[str, bytes] = {}
    size = 0
    for line in lines:
        content = json.dumps(line).encode() + b"\n"
        member[line["key"]] = content
        size += len(content)
        if len(member) >= ANSWERS_A_MEMBER or size >= BYTES_A_MEMBER:
            yield member
            member, size = {}, 0
    if member:
        yield member


def _number(key: str) -> int:
    return int(key[:16], 16)
