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


def test_a_service_that_comes_back_costs_only_waiting(waits: list[float]):
    work, calls = service(lambda number, _: ConnectionResetError("reset") if number < 4 else None)
    done = apply.apply(block(5), "infer", work)
    assert done["y"].to_pylist() == [0, 1, 2, 3, 4]
    assert (len(calls), len(waits)) == (4, 3)


def test_a_service_that_stays_away_blames_no_row(waits: list[float]):
    work, _ = service(lambda *_: TimeoutError("no answer"))
    with pytest.raises(ServiceUnavailable, match="none of 5 rows succeeded in 5 tries: TimeoutError") as caught:
        apply.apply(block(5), "infer", work)
    assert caught.value.stage == "infer"
    assert len(waits) == module.RETRIES.max_tries - 1


def test_one_row_that_never_gets_through_is_found_without_waiting_for_each_half(waits: list[float]):
    work, _ = service(lambda _, values: ConnectionError("unreachable") if 3 in values else None)
    done = apply.apply(block(8), "infer", work)
    assert [row for row, state in enumerate(done["__state"].to_pylist()) if state == blocks.QUARANTINED] == [3]
    assert done["__error_message"][3].as_py().startswith("unreachable (test_retry.py:")
    assert len(waits) == module.RETRIES.max_tries - 1


def test_a_row_alone_that_never_gets_through_is_blamed_in_the_end():
    work, calls = service(lambda *_: ConnectionError("unreachable"))
    done = apply.apply(block(1), "infer", work)
    assert done["__state"].to_pylist() == [blocks.QUARANTINED]
    assert len(calls) == module.RETRIES.max_tries


def test_an_error_that_will_not_pass_is_not_waited_for(waits: list[float]):
    work, _ = service(lambda _, values: ValueError("bad") if 3 in values else None)
    assert apply.apply(block(8), "infer", work)["__state"].to_pylist().count(blocks.QUARANTINED) == 1
    assert not waits
