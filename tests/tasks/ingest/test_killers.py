"""A file that ends the process that reads it costs itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from tests.contracts.sources.adapter import Adapter
from tests.contracts.sources.suite import SOURCES
from tests.tasks.ingest.deadly import CONTEXT, Deadly, Manager, read
from tests.tasks.runs import make_run

UNITS = 5
ERRORS = {"killed": "WorkerDied", "exits": "WorkerDied", "sys.exit": "RuntimeError"}


@pytest.fixture
def asked() -> Iterator[Any]:
    """A supervisor that the readers ask, as Ray's workers ask theirs."""
    CONTEXT.set_forkserver_preload(["tests.tasks.ingest.deadly", "overnight.tasks.ingest.kinds"])
    with Manager(ctx=CONTEXT) as manager:
        yield manager.Supervisor()  # type: ignore[attr-defined]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


def pending_units(leaf: Adapter, folder: Path, count: int) -> tuple[Source, pa.Table, pa.Schema | None]:
    """The source, its units and their columns, of so many files of two rows each."""
    folder.mkdir()
    for number in range(count):
        leaf.write(folder, f"{number:02d}", leaf.rows(2, 2 * number))
    source = leaf.source(folder)
    units = source.units(list_inputs(source, "all"))
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    return source, pending, source.common_schema(units)


def read_until_done(asked: Any, tries: int, *reading: Any) -> tuple[list[dict[str, Any]], int]:
    """The rows of the first process that survives its reading, and how many died before."""
    for died in range(tries):
        receiving, sending = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=read, args=(sending, asked, *reading))
        process.start()
        sending.close()
        try:
            return pa.ipc.open_stream(receiving.recv_bytes()).read_all().to_pylist(), died
        except EOFError:
            continue
        finally:
            process.join()
    return pytest.fail(f"{tries} processes died")


@pytest.mark.parametrize("killers", [[0], [19], [3, 4]])
def test_a_file_that_ends_its_reader_costs_itself(killers: list[int], tmp_path: Path, run: Run, asked: Any) -> None:
    source, units, schema = pending_units(SOURCES.adapters["csv"], tmp_path / "in", 20)
    deadly = Deadly(inner=source, ways={units["path"][place].as_py(): "exits" for place in killers})
    rows, died = read_until_done(asked, 13, units, deadly, run, schema)
    lost = [(row["__unit"], row["__error_type"]) for row in rows if row["__state"] == blocks.QUARANTINED]
    assert sorted(lost) == [(place, "WorkerDied") for place in killers]
    assert [row["__state"] for row in rows].count(blocks.LIVE) == 2 * (20 - len(killers))
    assert died <= 5 * len(killers)
    again, died = read_until_done(asked, 2, units, deadly, run, schema)
    assert (len(again), died) == (len(rows), 0), "a second reader takes no killer in hand"


@pytest.mark.parametrize(
    ("leaf", "turn"),
    [pytest.param(leaf, at % len(ERRORS), id=leaf.kind) for at, leaf in enumerate(SOURCES.adapters.values())],
)
def test_units_of_every_kind_that_end_their_reader_first_and_behind_cost_themselves(
    leaf: Adapter, turn: int, tmp_path: Path, run: Run, asked: Any
) -> None:
    source, pending, schema = pending_units(leaf, tmp_path / "in", UNITS)
    paths = pending["path"].to_pylist()
    assert len(paths) >= UNITS
    ways = dict(zip((paths[0], paths[-1]), [*ERRORS, *ERRORS][turn : turn + 2], strict=True))
    whole = rebatch.joined(source.read(pending, schema)).to_pylist()
    rows, _ = read_until_done(asked, 13, pending, Deadly(inner=source, ways=ways), run, schema)
    lost = [row for row in rows if row["__state"] == blocks.QUARANTINED]
    path_of = dict(zip(pending["unit"].to_pylist(), paths, strict=True))
    assert {path_of[row["__unit"]]: row["__error_type"] for row in lost} == {
        path: ERRORS[way] for path, way in ways.items()
    }
    named = {True: set[str](), False: set[str]()}
    for row in whole:
        if row["__state"] == blocks.LIVE:
            named[path_of[row["__unit"]] in ways].add(row["row_id"])
    assert {row["row_id"] for row in rows if row["__state"] == blocks.LIVE} == named[False]
    if not pending["rows"].null_count:  # then each row is lost under its own name
        assert {row["row_id"] for row in lost} == named[True]
