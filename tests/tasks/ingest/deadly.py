"""What ends the process that reads it, and the process: a module that imports little, as each process imports it."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseManager
from typing import Any

import pyarrow as pa

from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import rebatch
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import File
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import Supervisor


class Deadly(Source):
    """A local source of which some units end the process that reads them, each in a way."""

    kind: str = "deadly"
    inner: Any
    ways: dict[str, str]

    def is_local(self, partition: str) -> bool:
        return True

    def files(self, partition: str) -> Iterator[File]:
        return iter(())

    def units(self, files: list[File]) -> pa.Table:
        return UNITS.empty_table()

    def place(self, partition: str) -> str:
        return str(self.inner.place(partition))

    def lost(self, unit: dict[str, Any], error: Exception) -> Iterator[pa.Table]:
        yield from self.inner.lost(unit, error)

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for place, path in enumerate(units["path"].to_pylist()):
            if way := self.ways.get(path):
                die(way)
            yield from self.inner.read(units[place : place + 1], schema)


def die(way: str) -> None:
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory ends
    if way == "exits":
        os._exit(1)
    sys.exit("no more")


class Manager(BaseManager):
    pass


Manager.register("Supervisor", Supervisor)
# Of a clean process: one with a Ray, as this one may be, does not survive a fork.
CONTEXT = multiprocessing.get_context("forkserver")


def read(
    sending: Connection, asked: Any, units: pa.Table, source: Source, run: Run, schema: pa.Schema | None = None
) -> None:
    """Send what `read_units` reads. In a process of its own."""
    vars(supervisor).update(
        ask=lambda run, question, *given: getattr(asked, question.__name__)(*given),
        emit=lambda run, event: asked.on(event),
        is_there=lambda run: True,
    )
    table = rebatch.joined(read_units(units, source, run, schema))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    sending.send_bytes(sink.getvalue().to_pybytes())
