"""A file that ends the process that reads it costs itself."""

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import File
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import Supervisor
from tests.tasks.runs import make_run

ROWS = 3  # of each file


class Killing(Source):
    """Files of three rows, of which the listed ones end the process."""

    kind: str = "killing"
    killers: list[str] = []
    counted: bool = True

    def place(self, partition: str) -> str:
        return "here"

    def is_local(self, partition: str) -> bool:
        return True

    def files(self, partition: str) -> Iterator[File]:
        return iter(())

    def units(self, files: list[File]) -> pa.Table:
        return UNITS.empty_table()

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            if unit["path"] in self.killers:
                os._exit(1)
            names = [f"{unit['path']}#{row}" for row in range(ROWS)]
            table = pa.table({"row_id": names, "uri": [unit["uri"]] * ROWS})
            yield blocks.with_hidden(table, [unit["unit"]] * ROWS, list(range(ROWS)))


class Manager(BaseManager):
    pass


Manager.register("Supervisor", Supervisor)
# Of a clean process: one with a Ray, as this one may be, does not survive a fork.
CONTEXT = multiprocessing.get_context("forkserver")


@pytest.fixture
def asked() -> Iterator[Any]:
    """A supervisor that the readers ask, as Ray's workers ask theirs."""
    CONTEXT.set_forkserver_preload(["overnight.tasks.ingest.reading.read_units"])
    with Manager(ctx=CONTEXT) as manager:
        yield manager.Supervisor()  # type: ignore[attr-defined]


def units_of(names: list[str], count: int | None) -> pa.Table:
    found: list[dict[str, Any]] = [
        {"unit": i, "path": name, "uri": f"/in/{name}", "size": 10, "version": "1", "first_row": 0, "rows": count}
        for i, name in enumerate(names)
    ]
    return pa.Table.from_pylist([unit | {"settled": None} for unit in found], schema=PENDING)


def read_until_done(asked: Any, tries: int, *reading: Any) -> tuple[pa.Table, int]:
    """What the first process reads that survives it, and how many died before."""
    for died in range(tries):
        receiving, sending = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=read, args=(sending, asked, *reading))
        process.start()
        sending.close()
        try:
            return pa.ipc.open_stream(receiving.recv_bytes()).read_all(), died
        except EOFError:
            continue
        finally:
            process.join()
    return pytest.fail(f"{tries} processes died")


def read(sending: Connection, asked: Any, units: pa.Table, source: Source, run: Run) -> None:
    """Send what `read_units` reads. In a process of its own."""

    def ask(run: Run, method: str, *given: Any) -> Any:
        return getattr(asked, method)(*given)

    vars(supervisor).update(ask=ask, tell=ask, is_there=lambda run: True)
    table = rebatch.joined(read_units(units, source, run, None))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    sending.send_bytes(sink.getvalue().to_pybytes())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


@pytest.mark.parametrize("killers", [["0"], ["5"], ["19"], ["3", "4"]])
@pytest.mark.parametrize("count", [ROWS, None])
def test_a_file_that_ends_its_reader_costs_itself(killers: list[str], count: int | None, run: Run, asked: Any) -> None:
    units = units_of([str(i) for i in range(20)], count)
    source = Killing(killers=killers)
    table, died = read_until_done(asked, 13, units, source, run)
    states = table["__state"].to_numpy()
    lost = table.filter(pa.array(states == blocks.QUARANTINED))
    assert set(lost["__unit"].to_pylist()) == {int(name) for name in killers}
    assert set(lost["__error_type"].to_pylist()) == {"WorkerDied"}
    assert len(lost) == len(killers) * (count or 1)
    assert (states == blocks.LIVE).sum() == (20 - len(killers)) * ROWS
    assert died <= 5 * len(killers)


def test_a_second_reader_of_the_same_files_takes_no_killer_in_hand(run: Run, asked: Any) -> None:
    units, source = units_of(["0", "1"], 1), Killing(killers=["1"])
    first, _ = read_until_done(asked, 13, units, source, run)
    second, died = read_until_done(asked, 2, units, source, run)
    assert (second.num_rows, died) == (first.num_rows, 0)
