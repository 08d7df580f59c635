"""A process that does pieces of work in forks of itself, each killed before a given effect on storage.

It forks, because a start with these imports takes nine seconds of CPU, and the tests need a thousand. It reads a line
of JSON for each list of work: the pickle's path, the store, and the environment. It answers with the numbers of effects
of the work that did not die, and an error.
"""

import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import deltalake
import lance
import pyiceberg.catalog.sql
import s3fs
import sqlalchemy

from overnight.tasks.storage.location import Location
from overnight.tasks.write.publish.publish import publish, repair
from overnight.tasks.write.sinks import directory_swap

Work = tuple[str, tuple[Any, ...], int]  # "publish" or "repair", what it takes, and the effect before which it dies
WAYS: dict[str, Callable[..., Any]] = {"publish": publish, "repair": repair}
EFFECTS: list[tuple[Any, tuple[str, ...]]] = [
    (os, ("rename", "replace", "unlink", "rmdir", "mkdir", "symlink", "link")),
    (directory_swap, ("swap",)),
    (deltalake.DeltaTable, ("create", "create_write_transaction")),
    (lance.LanceDataset, ("commit",)),
    (pyiceberg.catalog.sql.SqlCatalog, ("commit_table",)),
    (sqlalchemy.Connection, ("execute",)),
    (sqlalchemy.engine.default.DefaultDialect, ("do_commit",)),
]
ON_S3 = (Location, ("write_bytes", "remove"))


class Steps:
    """Counts the effects of this process, and kills it before the effect `last`. 0: never."""

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def count_calls(self, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def one_more(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return real(*args, **kwargs)

        setattr(owner, name, one_more)

    def count_copies(self) -> None:
        """Have s3fs copy one object at a time, and count each."""
        real = s3fs.S3FileSystem.copy

        def copy(filesystem: Any, sources: list[str], targets: list[str]) -> None:
            for source, target in zip(sources, targets, strict=True):
                self.step()
                real(filesystem, [source], [target])

        s3fs.S3FileSystem.copy = copy


def do(work: str, arguments: tuple[Any, ...], last: int, store: str) -> int | str:
    """Return the number of effects of the work, or its traceback."""
    steps = Steps(last)
    for owner, names in [*EFFECTS, *([ON_S3] if store == "s3" else [])]:
        for name in names:
            steps.count_calls(owner, name)
    if store == "s3":
        steps.count_copies()
    try:
        WAYS[work](*arguments)
    except BaseException:
        return traceback.format_exc()
    return steps.count


def do_in_fork(*work: Any) -> int | str | None:
    """Return what `do` returns in a fork of this process, or None if it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writing, "w") as pipe:
            json.dump(do(*work), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGKILL:
        return None
    return json.loads(answer) if answer else f"it ended with {code}"


def answer(file: str, store: str, environment: dict[str, str]) -> tuple[list[int], str]:
    """Return the numbers of effects of the work that did not die, and the first error."""
    os.environ.update(environment)
    counts = []
    with open(file, "rb") as pickled:
        works: list[Work] = pickle.load(pickled)
    for work, arguments, last in works:
        found = do_in_fork(work, arguments, last, store)
        if isinstance(found, str):
            return counts, f"{work} before effect {last} failed: {found}"
        if found is not None:
            counts.append(found)
    return counts, ""


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)
