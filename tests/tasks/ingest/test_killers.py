"""A file that ends the process that reads it costs itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from tests.contracts.sources.adapter import Adapter
from tests.contracts.sources.suite import SOURCES
from tests.tasks.ingest.hostile.deadly import CONTEXT, ROWS, Deadly, Killing, Manager, read
from tests.tasks.runs import make_run


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


UNITS = 5
ERRORS = {"killed": "WorkerDied", "exits": "WorkerDied", "sys.exit": "RuntimeError"}


@pytest.mark.parametrize(
    ("leaf", "turn"),
    [pytest.param(leaf, at % len(ERRORS), id=leaf.kind) for at, leaf in enumerate(SOURCES.adapters.values())],
)
def test_units_of_every_kind_that_end_their_reader_first_and_behind_cost_themselves(
    leaf: Adapter, turn: int, tmp_path: Path, run: Run, asked: Any
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(UNITS):
        leaf.write(tmp_path / "in", str(number), leaf.rows(2, 2 * number))
    source = leaf.source(tmp_path / "in")
    units = source.units(list_inputs(source, "all"))
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    schema, paths = source.common_schema(units), units["path"].to_pylist()
    assert len(paths) >= UNITS
    order = [*ERRORS, *ERRORS][turn : turn + 3]
    ways = dict(zip((paths[0], paths[len(paths) // 2], paths[-1]), order, strict=True))
    whole = rebatch.joined(source.read(pending, schema)).to_pylist()
    table, _ = read_until_done(asked, 13, pending, Deadly(inner=source, ways=ways), run, schema)
    lost = [row for row in table.to_pylist() if row["__state"] == blocks.QUARANTINED]
    path_of = dict(zip(units["unit"].to_pylist(), paths, strict=True))
    found = {path_of[row["__unit"]]: row["__error_type"] for row in lost}
    assert found == {path: ERRORS[way] for path, way in ways.items()}
    named = {True: set[str](), False: set[str]()}
    for row in whole:
        if row["__state"] == blocks.LIVE:
            named[path_of[row["__unit"]] in ways].add(row["row_id"])
    assert {row["row_id"] for row in table.to_pylist() if row["__state"] == blocks.LIVE} == named[False]
    if not units["rows"].null_count:  # then each row is lost under its own name
        assert {row["row_id"] for row in lost} == named[True]
