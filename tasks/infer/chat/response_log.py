"""A log of paid answers: after a crash, rows that are not settled reuse their answers instead of new requests.

    <generation>/answers/<model>/<writer>[-<number>].jsonl     {"key": ..., "answer": {...}}, one line per answer

On a local disk, a line is written to the operating system before its answer is used, so a killed process loses none. An
object store cannot append. There, answers wait for `flush`, for about `SECONDS_A_FILE` seconds, and a crash loses these
answers. A key identifies the request and its row. Answers of earlier processes stay in their files, and are found
through an index of 28 bytes per answer. The log is removed when its rows are published.
"""

import contextlib
import hashlib
import json
import math
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location

SECONDS_A_FILE = 5.0
FIRST_ANSWERS = 1000  # of a process, which it finds itself: the stream requests those of a trial again

INDEX = np.dtype([("key", np.uint64), ("file", np.int32), ("start", np.int64), ("length", np.int64)])


class NoLog:
    """The interface of a log of a model's answers by key. This class keeps nothing and finds nothing.

    Keys are from `key_of`.
    """

    def find(self, key: str) -> Any:
        """Return the answer that is kept under `key`, or None if the log has no such answer."""
        return None

    def add(self, key: str, answer: Any) -> None:
        """Keep `answer`, a value that JSON can represent, under `key`."""

    def flush(self, now: bool = False) -> None:
        """Write the answers that are only in memory, if `SECONDS_A_FILE` seconds have passed since the last write.

        If `now`, write them in any case.
        """


class ResponseLog(NoLog):
    """The log of one model's answers in the directory `place`, to which each process writes files of its own.

    It finds the answers of earlier processes, and the first ones of its own.
    """

    def __init__(self, place: Location) -> None:
        self._place, self._lock = place, threading.Lock()
        self._name, self._number, self._waiting, self._written_at = uuid.uuid4().hex, 0, bytearray(), -math.inf
        self._appended: Any = None
        self._first: dict[str, Any] = {}
        self._files = place.names()
        self._index = self._read()

    def find(self, key: str) -> Any:
        if key in self._first:
            return self._first[key]
        number = _number(key)
        first = np.searchsorted(self._index["key"], number)
        for found in self._index[first:]:
            if found["key"] != number:
                return None
            line = self._line(self._files[found["file"]], int(found["start"]), int(found["length"]))
            if line["key"] == key:
                return line["answer"]
        return None

    def add(self, key: str, answer: Any) -> None:
        line = json.dumps({"key": key, "answer": answer}).encode() + b"\n"
        with self._lock:
            if len(self._first) < FIRST_ANSWERS:
                self._first[key] = answer
            if self._append(line):
                return
            self._waiting += line

    def flush(self, now: bool = False) -> None:
        with self._lock:
            if self._waiting and (now or time.monotonic() >= self._written_at + SECONDS_A_FILE):
                self._write_waiting()

    def _append(self, line: bytes) -> bool:
        """Append the line and return True. Return False if the store cannot append."""
        if self._appended is None:
            filesystem, path = self._place.open_filesystem()
            if not is_local(filesystem):
                return False
            Path(path).mkdir(parents=True, exist_ok=True)
            self._appended = Path(path, f"{self._name}.jsonl").open("ab", buffering=0)  # noqa: SIM115 - kept open
        with translate_storage_errors("write", self._place):
            self._appended.write(line)
        return True

    def _write_waiting(self) -> None:
        (self._place / f"{self._name}-{self._number:06}.jsonl").write_bytes(bytes(self._waiting))
        self._number += 1
        self._waiting.clear()
        self._written_at = time.monotonic()

    def _read(self) -> np.ndarray:
        found = []
        for file, name in enumerate(self._files):
            start = 0
            with (self._place / name).open() as lines:
                for line in lines:
                    with contextlib.suppress(ValueError, KeyError):  # cut off when its process died
                        found.append((_number(json.loads(line)["key"]), file, start, len(line)))
                    start += len(line)
        index = np.array(found, INDEX)
        return index[np.argsort(index["key"], kind="stable")]

    def _line(self, name: str, start: int, length: int) -> dict[str, Any]:
        with (self._place / name).open() as file:
            file.seek(start)
            line: dict[str, Any] = json.loads(file.read(length))
        return line


def open_log(place: Location | None) -> NoLog:
    """Return the log in the directory `place`, or a log that keeps nothing if `place` is None."""
    return ResponseLog(place) if place else NoLog()


def key_of(row_id: str, asked: Any) -> str:
    """Return the key of an answer: a hash, in hexadecimal, of the row's id and the request body `asked`."""
    return hashlib.sha256(json.dumps([row_id, asked], sort_keys=True).encode()).hexdigest()


def _number(key: str) -> int:
    return int(key[:16], 16)
