"""The state of a run that its workers share: rows count once however often they are reported, limits, incidents.

A process that was forked for a worker reports through that worker, here through this process, to a state without Ray.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from overnight.tasks.errors import RowError, TooManyQuarantined
from overnight.tasks.rows import blocks
from overnight.tasks.storage import failed_requests
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.forked_process import in_process_of_its_own
from overnight.tasks.workers.poison_rows import RowsBegun
from overnight.tasks.workers.spending import Amount, Paid, Spending
from overnight.tasks.workers.supervisor import (
    DETAILS_AT_ONCE,
    KEPT,
    Incident,
    RowsPassed,
    Snapshot,
    StreamRuns,
    Supervisor,
)
from tests.tasks.blocks import numbered_block
from tests.tasks.runs import make_run


def details(count: int) -> list[dict[str, str]]:
    names = ("row_id", "stage", "error_type", "error_message")
    return [dict(zip(names, (f"r{row}", "infer", "ValueError", f"no {row}"), strict=True)) for row in range(count)]


def allowed(limit: int, already: int = 0) -> supervisor.QuarantineAllowed:
    return supervisor.QuarantineAllowed(limit, already, "of the 300 rows")


def test_a_snapshot_has_the_last_incident_also_if_it_happened_before() -> None:
    state = Supervisor()
    assert state.snapshot("a").last_incident is None
    for what in ("a worker died", "the store was waited for", "a worker died"):
        state.on(Incident("infer", what))
    assert state.snapshot("a").last_incident == Incident("infer", "a worker died")


def test_a_run_stops_with_the_first_row_beyond_the_limit_and_a_row_counts_once() -> None:
    state = Supervisor()
    state.on(allowed(3, already=1))
    assert state.quarantined([0, 0], [0, 1], details(2)) is None
    assert state.quarantined([0, 0], [1, 0], details(2)) is None  # again, after a worker died
    stop = state.quarantined([1], [0], details(1))  # of another unit
    assert stop is not None
    for fact in ("at least 4 rows", "allows 3 of the 300 rows", "r0 in infer: ValueError: no 0"):
        assert fact in stop
    assert state.quarantined_since(0, 0) == (3, [])


def test_a_stream_learns_that_it_must_stop_and_the_answer_is_whether_one_runs() -> None:
    state = Supervisor()
    assert (state.stop_stream(), state.must_stop()) == (False, True)
    state = Supervisor()
    state.on(StreamRuns(True))
    assert not state.must_stop()
    assert state.stop_stream()
    state.on(StreamRuns(False))
    assert not state.stop_stream()


def test_only_the_first_rows_keep_their_reasons() -> None:
    state, count = Supervisor(), KEPT + 2
    state.on(allowed(10**6))
    state.quarantined([0] * count, list(range(count)), details(count))
    assert state.quarantined_since(0, count) == (count, details(KEPT))


def test_without_a_limit_no_row_is_counted_and_each_attempt_counts_from_zero() -> None:
    state = Supervisor()
    assert state.quarantined([0], [0], details(1)) is None
    assert state.quarantined_since(0, 10) == (0, [])
    state.on(allowed(1, 0))
    assert state.quarantined([0], [0], details(1)) is None
    assert state.quarantined_since(0, 10) == (1, details(1))
    state.on(allowed(1, 1))
    assert state.quarantined_since(0, 10) == (0, [])
    assert state.quarantined([0], [0], details(1)) is not None


def test_blocks_that_are_reported_again_count_once_and_only_for_their_attempt() -> None:
    state = Supervisor()
    for attempt, unit, ends in (("a", 0, 2), ("a", 0, 2), ("a", 5, 1), ("b", 0, 9)):
        state.on(supervisor.UnitsRead(attempt, unit, ends))
    for rows in (3, 6, 3):
        state.on(RowsPassed("a", "preprocess", (0, 0), rows))
    state.on(RowsPassed("a", "preprocess", (1, 0), 4))
    state.on(RowsPassed("a", "ingest", (0, 0), 1))
    state.on(RowsPassed("b", "ingest", (0, 0), 50))
    assert state.snapshot("a") == Snapshot(ends=3, passed={"preprocess": 10, "ingest": 1})
    assert (state.snapshot("b").ends, state.snapshot("b").passed) == (9, {"ingest": 50})
    assert state.snapshot("c") == Snapshot()


def test_equal_incidents_are_counted_from_the_first_warnings_stand_once_and_the_most_memory_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = Supervisor()
    moments = iter([datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(3)])
    monkeypatch.setattr(supervisor, "datetime", SimpleNamespace(now=lambda zone: next(moments)))
    for stage, what, is_warning in (("infer", "b", True), ("infer", "b", True), ("ingest", "a", False)):
        state.on(Incident(stage, what, is_warning))
    found = state.snapshot("a")
    assert [tuple(incident.values()) for incident in found.incidents] == [
        ("infer", "b", 2, "2026-01-01T00:00:00Z"),
        ("ingest", "a", 1, "2026-01-01T00:00:02Z"),
    ]
    assert (found.warnings, found.device_memory) == (("b",), None)
    for size in (5, 9, 7):
        state.on(supervisor.DeviceMemoryTaken(size))
    assert state.snapshot("a").device_memory == 9


def test_what_a_worker_of_ray_reports_before_it_ends_is_recorded(ray_session: None, tmp_path: Path) -> None:
    run = make_run(tmp_path)

    @ray.remote(max_retries=0)
    def end() -> None:
        supervisor.emit(run, RowsBegun("worker", "block", 0, 1))
        os._exit(1)

    with supervisor.supervised(run):
        with pytest.raises(ray.exceptions.WorkerCrashedError):
            ray.get(end.remote())
        assert supervisor.ask(run, Supervisor.suspects, "another worker", "block") == ["worker"]


@pytest.fixture(scope="module")
def _forks() -> Iterator[None]:
    with fork_server.started():
        fork_server.preload([__name__])  # once, instead of in each forked process
        yield


@pytest.fixture
def state(_forks: None) -> Supervisor:
    return Supervisor()


def forked(state: Supervisor, work: Any, *arguments: Any) -> Any:
    """Do the work in a forked process whose worker knows the run's supervisor."""
    return in_process_of_its_own(partial(work, *arguments), lambda run, question, *given: question(state, *given))


def test_rows_that_a_stage_quarantined_are_reported_and_those_of_earlier_stages_are_not(
    state: Supervisor, tmp_path: Path
) -> None:
    run, before = make_run(tmp_path), blocks.with_errors(numbered_block(4), {0: RowError("early")}, "preprocess")
    after = blocks.with_errors(before, {2: RowError("late")}, "infer")
    state.on(allowed(2, 0))
    for block, earlier in ((after, before), (before, before)):
        forked(state, supervisor.report_quarantined, block, earlier, run)
    _, [row] = state.quarantined_since(0, 9)
    assert (row["row_id"], row["stage"], row["error_message"]) == ("r2", "infer", "late")
    forked(state, supervisor.report_quarantined, after, None, run)
    count, [second] = forked(state, supervisor.ask, run, Supervisor.quarantined_since, 1, 9)
    assert (count, second["row_id"]) == (2, "r0")
    one_more = blocks.with_errors(after, {3: RowError("one more")}, "infer")
    with pytest.raises(TooManyQuarantined) as stopped:
        forked(state, supervisor.report_quarantined, one_more, after, run)
    assert stopped.value.stage == "infer"


def test_a_report_of_many_rows_counts_all_and_has_the_reasons_of_the_first(state: Supervisor, tmp_path: Path) -> None:
    count = DETAILS_AT_ONCE + 5
    lost = blocks.quarantine(numbered_block(count), RowError("none of them"), "infer")
    state.on(allowed(count, 0))
    forked(state, supervisor.report_quarantined, lost, None, make_run(tmp_path))
    found, rows = state.quarantined_since(0, count)
    assert (found, len(rows)) == (count, DETAILS_AT_ONCE)


def report_all(run: Any) -> tuple[Any, ...]:
    assert supervisor.is_there(run)
    supervisor.report(run, "infer", "cannot read https://user:secret@host/x", is_warning=True)
    failed_requests.note("host: 503")
    supervisor.report_storage_problems(run, "ingest")
    supervisor.report_storage_problems(run, "ingest")
    no_log = supervisor.kept_log(run)
    supervisor.emit(run, supervisor.LinesWritten(["hello", "you"]))
    log = supervisor.kept_log(run)
    return supervisor.snapshot(run), no_log, log, supervisor.ask(run, Supervisor.lines_since, 1)


def test_an_incident_has_no_secret_and_the_log_is_written_once_there_is_one(state: Supervisor, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    found, no_log, log, lines = forked(state, report_all, run)
    masked, waited = "cannot read https://***:***@host/x", "waited for the storage: host: 503"
    assert [tuple(incident.values())[:3] for incident in found.incidents] == [
        ("infer", masked, 1),
        ("ingest", waited, 1),
    ]
    assert found.warnings == (masked,)
    assert (no_log, log, lines) == (None, str(run.log), (2, ["you"]))
    assert run.log.read_bytes().decode().splitlines() == ["hello", "you"]


def test_without_a_supervisor_reports_are_dropped(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert not supervisor.is_there(run)
    supervisor.report(run, "infer", "nothing hears this")
    supervisor.leave(run, "worker")
    supervisor.report_quarantined(blocks.quarantine(numbered_block(2), RowError("x"), "infer"), None, run)
    assert (supervisor.snapshot(run), supervisor.kept_log(run)) == (Snapshot(), None)
    assert supervisor.ask(run, Supervisor.quarantined_since, 0, 5) is None


def test_a_second_try_keeps_what_models_without_a_log_have_spent() -> None:
    state, paid = Supervisor(), Paid(2, Amount(30))
    state.begin_spending(Spending({}, None, {"vllm": paid, "openai": paid}))
    state.begin_spending(Spending({}, None, {"vllm": Paid(), "openai": Paid(1, Amount(9))}))
    assert state.spent() == Paid(3, Amount(39))
