"""Answers that were paid for, kept as they come: what a crash leaves unsettled is then looked up, not asked again.

    <generation>/answers/<model>/<writer>[-<number>].jsonl     {"key": ..., "answer": {...}}, a line an answer

On a local disk a line is handed to the operating system before its answer is used, so a process that is killed loses
none. An object store cannot append: there answers wait for `flush`, some `SECONDS_A_FILE`, which is what a crash costs.
A key says what was asked and for which row. What earlier processes left is found through an index of 28 bytes an
answer; the answers stay in the files. A journal goes with the publish of its rows.
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

from overnight.tasks.storage.error_translation import worded
from overnight.tasks.storage.location import Location, is_local

SECONDS_A_FILE = 5.0

INDEX = np.dtype([("key", np.uint64), ("file", np.int32), ("start", np.int64), ("length", np.int64)])


class Journal:
    """The journal of one model in a process. `place` None: nothing is kept."""

    def __init__(self, place: Location | None) -> None:
        self._place, self._lock = place, threading.Lock()
        self._name, self._number, self._waiting, self._written_at = uuid.uuid4().hex, 0, bytearray(), -math.inf
        self._appended: Any = None
        self._files: list[str] = place.names() if place else []
        self._index = self._read() if place else np.empty(0, INDEX)

    def find(self, key: str) -> Any:
        """The answer that an earlier process got for `key`; None where there is none."""
        if self._place is None:
            return None
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
        """Keeps `answer`, which JSON can write."""
        if self._place is None:
            return
        line = json.dumps({"key": key, "answer": answer}).encode() + b"\n"
        with self._lock:
            if self._append(line):
                return
            self._waiting += line

    def flush(self, now: bool = False) -> None:
        """Writes what waits, if it is time."""
        with self._lock:
            if self._waiting and (now or time.monotonic() >= self._written_at + SECONDS_A_FILE):
                self._write_waiting()

    def _append(self, line: bytes) -> bool:
        """Where files can grow."""
        assert self._place is not None
        if self._appended is None:
            filesystem, path = self._place.open_filesystem()
            if not is_local(filesystem):
                return False
            Path(path).mkdir(parents=True, exist_ok=True)
            self._appended = Path(path, f"{self._name}.jsonl").open("ab", buffering=0)  # noqa: SIM115 - kept open
        with worded("write", self._place):
            self._appended.write(line)
        return True

    def _write_waiting(self) -> None:
        assert self._place is not None
        (self._place / f"{self._name}-{self._number:06}.jsonl").write_bytes(bytes(self._waiting))
        self._number += 1
        self._waiting.clear()
        self._written_at = time.monotonic()

    def _read(self) -> np.ndarray:
        assert self._place is not None
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
        assert self._place is not None
        with (self._place / name).open() as file:
            file.seek(start)
            line: dict[str, Any] = json.loads(file.read(length))
        return line


def key_of(row_id: str, asked: Any) -> str:
    """Names a row and what was asked for it."""
    return hashlib.sha256(json.dumps([row_id, asked], sort_keys=True).encode()).hexdigest()


def _number(key: str) -> int:
    return int(key[:16], 16)
