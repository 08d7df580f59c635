"""A log of paid answers: after a crash, rows that are not settled reuse their answers.

On a local disk, a line is written to the operating system before its answer is used. An object store cannot append:
there a crash loses the answers of about `SECONDS_A_FILE` seconds; the last call's are written immediately. Answers of
earlier processes stay in their files. The log is removed when its rows are published.
"""

import contextlib
import hashlib
import json
import math
import re
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location

# A file is <generation>/answers/<model>/<writer>[-<number>].jsonl, with {"key": ..., "answer": {...}} per line, and
# "reuse" if the publish keeps the answer for later runs. <model>.reused has the tokens of answers of earlier runs.
SECONDS_A_FILE = 5.0
FIRST_ANSWERS = 1000  # of a process, which it finds itself: the stream requests those of a trial again

SIGNED_QUERY = re.compile(r"(?<=[^\s\"])\?[^\s\"?]*X-Amz-Signature=[^\s\"]*")

INDEX = np.dtype([("key", np.uint64), ("file", np.int32), ("start", np.int64), ("length", np.int64)])


class NoLog:
    """The interface of a log of a model's answers, by keys of `key_of`. This class keeps nothing."""

    def find(self, key: str) -> Any:
        """Return the answer with this key, or None if the log has no such answer."""
        return None

    def first(self) -> Any:
        """Return one of the answers of earlier processes; None without any."""
        return None

    def add(self, key: str, answer: Any, reuse: Any = None) -> None:
        """Keep `answer`, a value that JSON can represent, under `key`. `reuse`: under what later runs find it."""

    def flush(self, now: bool = False) -> None:
        """Write the answers that are only in memory, at most every `SECONDS_A_FILE` seconds unless `now`."""


class ResponseLog(NoLog):
    """The log of one model's answers in a directory, to which each process writes files of its own.

    It finds the answers of earlier processes, by an index of 36 bytes per answer, and the first of its own.
    """

    def __init__(self, folder: Location) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._name, self._number = uuid.uuid4().hex, 0
        self._buffer, self._written, self._next_file = bytearray(), 0, -math.inf
        self._file: Any = None
        self._first: dict[str, Any] = {}
        self._files = folder.names()
        self._index = self._read_index()
        self._keys = np.ascontiguousarray(self._index["key"])  # a search in the index itself would copy all keys

    def find(self, key: str) -> Any:
        if key in self._first:
            return self._first[key]
        number = np.uint64(_number(key))
        first, stop = self._keys.searchsorted(number), self._keys.searchsorted(number, "right")
        for entry in self._index[first:stop]:
            line = self._line(entry)
            if line["key"] == key:
                return line["answer"]
        return None

    def first(self) -> Any:
        return self._line(self._index[0])["answer"] if len(self._index) else None

    def add(self, key: str, answer: Any, reuse: Any = None) -> None:
        record = {"key": key, "answer": answer}
        if reuse:
            record["reuse"] = reuse
        line = json.dumps(record).encode() + b"\n"
        with self._lock:
            if len(self._first) < FIRST_ANSWERS:
                self._first[key] = answer
            if not self._append(line):
                self._buffer += line

    def flush(self, now: bool = False) -> None:
        with self._lock:
            is_due = time.monotonic() >= self._next_file
            if len(self._buffer) > self._written and (now or is_due):
                (self._folder / f"{self._name}-{self._number:06}.jsonl").write_bytes(bytes(self._buffer))
                self._written = len(self._buffer)
            if is_due and self._buffer:  # otherwise the next write replaces this file, with these answers and more
                self._number += 1
                self._buffer.clear()
                self._written, self._next_file = 0, time.monotonic() + SECONDS_A_FILE

    def _append(self, line: bytes) -> bool:
        """Append the line and return True. Return False if the store cannot append."""
        if self._file is None:
            filesystem, path = self._folder.open_filesystem()
            if not is_local(filesystem):
                return False
            Path(path).mkdir(parents=True, exist_ok=True)
            self._file = Path(path, f"{self._name}.jsonl").open("ab", buffering=0)  # noqa: SIM115 - kept open
        with translate_storage_errors("write", self._folder):
            self._file.write(line)
        return True

    def _line(self, entry: Any) -> Any:
        with (self._folder / self._files[entry["file"]]).open() as file:
            file.seek(int(entry["start"]))
            return json.loads(file.read(int(entry["length"])))

    def _read_index(self) -> np.ndarray:
        entries = []
        for number, name in enumerate(self._files):
            start = 0
            with (self._folder / name).open() as lines:
                for line in lines:
                    with contextlib.suppress(ValueError, KeyError):  # cut off when its process died
                        entries.append((_number(json.loads(line)["key"]), number, start, len(line)))
                    start += len(line)
        index = np.array(entries, INDEX)
        return index[np.argsort(index["key"], kind="stable")]


def open_log(folder: Location | None) -> NoLog:
    """Return the log in a directory, or a log that keeps nothing if `folder` is None."""
    return ResponseLog(folder) if folder else NoLog()


def key_of(row_id: str, body: Any) -> str:
    """Return the key of an answer: a hash, in hexadecimal, of the row's id and the request body.

    The query of a signed URL is not in it: another attempt signs the same object again.
    """
    text = SIGNED_QUERY.sub("", json.dumps([row_id, body], sort_keys=True))
    return hashlib.sha256(text.encode()).hexdigest()


def _number(key: str) -> int:
    return int(key[:16], 16)
