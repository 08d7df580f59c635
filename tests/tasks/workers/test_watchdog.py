"""A row that ends, breaks or blocks its process is found by the processes that follow; no other row is blamed."""

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.rows import apply, blocks
from overnight.tasks.rows.result import Outcome
from overnight.tasks.workers import fork_server, watchdog
from overnight.tasks.workers.forked_process import ProcessDied, in_process_of_its_own
from overnight.tasks.workers.row_isolation import APART, TOGETHER, RowIsolation
from overnight.tasks.workers.supervisor import Supervisor
from overnight.tasks.workers.watchdog import Watchdog
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

ROWS = 5
POISON = 3
BLOCK = source_block(0, 0, pa.table({"row_id": [f"r{row}" for row in range(ROWS)], "x": range(ROWS)}))


@pytest.fixture(autouse=True, scope="module")
def _forks() -> Iterator[None]:
    with fork_server.started():
        fork_server.preload([__name__])  # once, instead of in each forked process
        yield


def doubled(live: pa.Table) -> Outcome:
    return Outcome({"twice": [2 * x for x in live["x"].to_pylist()]})


def crash() -> None:
    os.abort()


def sleep() -> None:
    threading.Event().wait()


def hold_the_lock() -> None:
    re.match("(a+)+$", "a" * 64 + "b")


def spoil_the_device(guard: Watchdog) -> None:
    guard.end_process(RuntimeError("CUDA error: device-side assert triggered"))


def run_rows(folder: str, kill: Callable[..., None], limit: float | None, isolation: RowIsolation) -> pa.Table:
    """Run as a worker that follows others, in which the poison row calls `kill`."""
    watchdog.GRACE_SECONDS = 0.3
    guard = Watchdog(make_run(folder, row_timeout_seconds=limit), "infer", "the model", 0.0)

    def work(live: pa.Table) -> Outcome:
        if POISON in live["x"].to_pylist():
            kill(guard) if kill is spoil_the_device else kill()
        return doubled(live)

    return guard.run(BLOCK, lambda piece: apply.apply(piece, "infer", work), isolation)


def in_worker(state: Supervisor, work: Callable[[], Any]) -> Any:
    return in_process_of_its_own(work, lambda run, question, *given: question(state, *given))


@pytest.mark.parametrize(
    ("kill", "deaths", "error_type"),
    [
        (crash, 2, "WorkerDied"),
        (sleep, 1, "RowTimeout"),
        (hold_the_lock, 1, "RowTimeout"),
        (spoil_the_device, 2, "RuntimeError"),
    ],
)
def test_a_row_that_ends_its_process_is_quarantined_with_the_true_reason_after_few_deaths(
    tmp_path: Any, kill: Callable[..., None], deaths: int, error_type: str
) -> None:
    state = Supervisor()
    for _ in range(deaths):
        with pytest.raises(ProcessDied):
            in_worker(state, partial(run_rows, str(tmp_path), kill, 1.0, APART))
    done = in_worker(state, partial(run_rows, str(tmp_path), kill, 1.0, APART))
    lost = [blocks.QUARANTINED if row == POISON else blocks.LIVE for row in range(ROWS)]
    assert done["__state"].to_pylist() == lost
    assert (done["__error_type"][POISON].as_py(), done["__stage"][POISON].as_py()) == (error_type, "infer")
    assert [x for x in done["twice"].to_pylist() if x is not None] == [2 * x for x in range(ROWS) if x != POISON]


def test_rows_together_end_their_process_at_the_limit_and_without_a_limit_they_do_not(tmp_path: Any) -> None:
    state, began = Supervisor(), time.monotonic()
    with pytest.raises(ProcessDied):
        in_worker(state, partial(run_rows, str(tmp_path), sleep, 0.2, TOGETHER))
    assert time.monotonic() - began < 20
    done = in_worker(state, partial(run_rows, str(tmp_path), partial(time.sleep, 0.5), None, TOGETHER))
    assert done["__state"].to_pylist() == [blocks.LIVE] * ROWS


def test_a_slow_model_has_more_time_by_its_measured_pace(tmp_path: Any) -> None:
    def slow(live: pa.Table) -> pa.Table:
        time.sleep(0.4)
        return live

    guard = Watchdog(make_run(tmp_path, row_timeout_seconds=0.1), "infer", "the model", pace=0.1)
    assert len(guard.run(BLOCK, slow, TOGETHER)) == ROWS


def at_block(folder: str, end: Callable[[], None] | None) -> bool:
    """Run a block as a Ray task does, and return whether its rows run in pieces."""
    with Watchdog(make_run(folder), "preprocess", "steps", 0.0).at(BLOCK) as isolation:
        if end:
            end()
    return isolation.is_on


def fail() -> None:
    raise ValueError("the code of a step")


def test_a_process_that_is_through_with_its_block_well_or_with_an_error_counts_as_no_death(tmp_path: Any) -> None:
    state = Supervisor()
    with pytest.raises(ValueError, match="the code of a step"):
        in_worker(state, partial(at_block, str(tmp_path), fail))
    assert [in_worker(state, partial(at_block, str(tmp_path), None)) for _ in range(2)] == [False, False]
    assert state.snapshot("").incidents == []


def test_a_process_that_ends_within_its_block_is_one_incident_and_its_rows_run_apart(tmp_path: Any) -> None:
    state = Supervisor()
    with pytest.raises(ProcessDied):
        in_worker(state, partial(at_block, str(tmp_path), crash))
    assert [in_worker(state, partial(at_block, str(tmp_path), None)) for _ in range(2)] == [True, False]
    assert [(incident["stage"], incident["times"]) for incident in state.snapshot("").incidents] == [("preprocess", 1)]


TWO_THREADS = """
    import threading, time
    from overnight.tasks.workers.watchdog import _process_limited

    def call(seconds):
        with _process_limited(60):
            time.sleep(seconds)

    with _process_limited(1):
        slow, quick = (threading.Thread(target=call, args=(seconds,), daemon=True) for seconds in (30, 0))
        slow.start()
        quick.start()
        quick.join()
        time.sleep(30)
"""


def test_of_the_limits_of_several_threads_the_earliest_is_in_force_and_stays_so() -> None:
    started = time.monotonic()
    command = [sys.executable, "-c", textwrap.dedent(TWO_THREADS)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert time.monotonic() - started < 25
