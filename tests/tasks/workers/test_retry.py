"""An error that may pass costs waiting; only where others get through is a row to blame."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from overnight.tasks.errors import ServiceUnavailable
from overnight.tasks.rows import apply, blocks, result
from overnight.tasks.workers import retry as module
from overnight.tasks.workers.retry import with_retries
from tests.tasks.blocks import source_block


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds slept, instead of sleeping."""
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    return slept


def block(count: int) -> pa.Table:
    return source_block(0, 0, pa.table({"row_id": [f"r{i}" for i in range(count)], "x": range(count)}))


def service(fails: Callable[[int, list[int]], Exception | None]) -> tuple[result.Work, list[list[int]]]:
    calls: list[list[int]] = []

    def work(live: pa.Table) -> result.Outcome:
        calls.append(live["x"].to_pylist())
        if error := fails(len(calls), calls[-1]):
            raise error
        return result.Outcome({"y": live["x"]})

    return with_retries(work, "infer"), calls


def test_a_service_that_comes_back_costs_only_waiting(waits: list[float]) -> None:
    work, calls = service(lambda number, _: ConnectionResetError("reset") if number < 4 else None)
    done = apply.apply(block(5), "infer", work)
    assert done["y"].to_pylist() == [0, 1, 2, 3, 4]
    assert (len(calls), len(waits)) == (4, 3)


def test_a_service_that_stays_away_blames_no_row(waits: list[float]) -> None:
    work, calls = service(lambda *_: TimeoutError("no answer"))
    with pytest.raises(ServiceUnavailable, match="TimeoutError") as caught:
        apply.apply(block(5), "infer", work)
    assert caught.value.stage == "infer"
    assert (len(waits), len(calls)) == (4, 4 + 5)


@pytest.mark.parametrize(
    ("rows", "error", "waited", "whole"),
    [(8, ConnectionError, 4, 5), (1, ConnectionError, 4, 5), (8, ValueError, 0, 1)],
)
def test_a_row_that_never_gets_through_is_found_without_waiting_for_each_half(
    rows: int, error: type[Exception], waited: int, whole: int, waits: list[float]
) -> None:
    """An error that does not pass by itself is not waited for."""
    bad = rows // 2
    work, calls = service(lambda _, values: error("unreachable") if bad in values else None)
    done = apply.apply(block(rows), "infer", work)
    lost = [row for row, state in enumerate(done["__state"].to_pylist()) if state == blocks.QUARANTINED]
    assert lost == [bad]
    assert done["__error_message"][bad].as_py().startswith("unreachable (test_retry.py:")
    assert len(waits) == waited
    assert [len(values) for values in calls].count(rows) == whole
