"""The answers that a folder keeps for later runs, in files of `kept_files.py`.

A publish adds `<job>/<time>-<generation>-<model>.jsonl.gz` with an answer per line, in gzip members of at most 250
lines, and the index.
"""

import gzip
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from overnight.tasks.reuse.kept_files import INDEX, KeptFiles, is_older, keep_files
from overnight.tasks.storage.location import Location

ANSWERS_A_MEMBER, BYTES_A_MEMBER = 250, 2**18  # of JSON, before compression
ANSWERS = ".jsonl.gz"

Line = dict[str, Any]  # "key", "answer", and "at", the second of the answer


class KeptAnswers:
    """Finds answers of the last `days` days in a folder."""

    def __init__(self, folder: Location, days: float) -> None:
        self._oldest = time.time() - days * 86400
        jobs = [folder / job for job in folder.names()]
        self._kept = KeptFiles(jobs, ANSWERS, self._oldest, _lines)

    def find(self, key: str) -> Any:
        """Return the newest answer with this key, or None."""
        newest = None
        for member in self._kept.places(_number(key)):
            line = (self._kept.at(member) or {}).get(key)
            if line and line["at"] >= max(self._oldest, newest["at"] if newest else 0):
                newest = line
        return newest and newest["answer"]


def keep(folder: Location, name: str, lines: Iterable[Line]) -> int:
    """Write the answers of a publish under `name`, and return their number. The same name replaces its files."""
    members = _members(lines)
    first = next(members, None)
    if first is None:
        return 0
    return keep_files(folder, name, ANSWERS, map(_packed, itertools.chain([first], members)))


def remove_old(folder: Location, days: float) -> None:
    """Remove the files of one job that are older than `days` days, each index first."""
    oldest = time.time() - days * 86400
    for name in reversed(folder.names()):
        if name.endswith((ANSWERS, INDEX)) and is_older(name, oldest):
            (folder / name).remove()


def _lines(content: bytes) -> Mapping[str, Line]:
    """Return the lines of a member by their keys."""
    lines = map(json.loads, gzip.decompress(content).splitlines())
    return {line["key"]: {"answer": line["answer"], "at": line["at"]} for line in lines}


def _packed(member: Mapping[str, bytes]) -> tuple[np.ndarray, bytes]:
    content = gzip.compress(b"".join(member.values()), compresslevel=1, mtime=0)
    return np.array(list(map(_number, member)), np.uint64), content


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


def _number(key: str) -> np.uint64:
    return np.uint64(int(key[:16], 16))
