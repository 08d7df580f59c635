"""Where a case publishes, and how it becomes again as it was before."""

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import fsspec

from overnight.tasks.state.run import Run
from overnight.tasks.write.sink import Sink
from tests.contracts.crash_points.attempts import Work, attempt
from tests.contracts.sinks.publications import (
    create_schema,
    keep_schema,
    keeping,
    numbered,
    restore_schema,
    sink_of,
)

FOREIGN = "_theirs"
DAY = "2026-01-02"


@dataclass
class Place:
    """Where a case publishes: the job of the old rows ran there, unless it is the first publish.

    It has one path, because an Iceberg table has whole paths: what `begin` returns makes it as it was at first.
    """

    kind: str
    root: str
    partition: str
    work: Work
    before: list[int]

    @functools.cached_property
    def sink(self) -> Sink:
        changes = {"target_file_size": 1} if self.work.as_staged else {}
        return keeping(sink_of(self.kind, self.root).model_copy(update=changes), int(self.work.undo))

    def run(self, number: int) -> Run:
        """An attempt of the generation of the new rows."""
        return replace(numbered(self.root, number, self.partition), generation="g002")

    def begin(self) -> Callable[[], None]:
        """Publish the old rows; a function that makes everything as it is then."""
        if self.kind == "postgresql":
            create_schema(self.sink)
        if self.work.undo:
            attempt(numbered(self.root, 0, self.partition), self.sink, self.kind, Work(self.work.numbers))
        if self.before:
            attempt(numbered(self.root, 1, self.partition), self.sink, self.kind, Work(self.before))
        return self.kept()

    def kept(self) -> Callable[[], None]:
        """Add a foreign file, and return a function that makes everything as it is then."""
        (self.run(2).target / FOREIGN).write_bytes(b"theirs")
        if self.root.startswith("memory:"):
            return self._restoring_memory()
        kept = f"{self.root}-kept"
        shutil.copytree(self.root, kept, symlinks=True)
        if self.kind == "postgresql":
            keep_schema(self.sink)

        def restore() -> None:
            shutil.rmtree(self.root)
            shutil.copytree(kept, self.root, symlinks=True)
            if self.kind == "postgresql":
                restore_schema(self.sink)

        return restore

    def _restoring_memory(self) -> Callable[[], None]:
        memory, path = fsspec.filesystem("memory"), self.root.removeprefix("memory:/")
        files = {name: memory.cat_file(name) for name in memory.find(path)}

        def restore() -> None:
            memory.rm(path, recursive=True)
            for name, content in files.items():
                memory.pipe_file(name, content)

        return restore
