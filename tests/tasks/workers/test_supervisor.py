"""The state of a run that its workers share: rows count once however often they are reported, limits, incidents.

A process that was forked for a worker reports through that worker, here through this process, to a state without Ray.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import RowError, TooManyQuarantined
from overnight.tasks.rows import blocks
from overnight.tasks.storage import failed_requests
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.forked_process import in_process_of_its_own
from overnight.tasks.workers.supervisor import DETAILS_AT_ONCE, KEPT, QuarantineLimit, Supervisor
from tests.tasks.blocks import numbered_block
from tests.tasks.runs import make_run


def details(count: int) -> list[dict[str, str]]:
    names = ("row_id", "stage", "error_type", "error_message")
    return [dict(zip(names, (f"r{row}", "infer", "ValueError", f"no {row}"), strict=True)) for row in range(count)]


def test_a_run_stops_with_the_first_row_beyond_the_limit_and_a_row_counts_once() -> None:
    limit = QuarantineLimit(limit=3, already=1, of="of the 300 rows")
    assert limit.report([0, 0], [0, 1], details(2)) is None
    assert limit.report([0, 0], [1, 0], details(2)) is None  # again, after a worker died
    stop = limit.report([1], [0], details(1))  # of another unit
    assert stop is not None
    for fact in ("at least 4 rows", "allows 3 of the 300 rows", "r0 in infer: ValueError: no 0"):
        assert fact in stop
    assert limit.count() == 3


def test_only_the_first_rows_keep_their_reasons() -> None:
    limit = QuarantineLimit(limit=10**6, already=0, of="of all rows")
    count = KEPT + 2
    limit.report([0] * count, list(range(count)), details(count))
    assert (limit.count(), len(limit.details())) == (count, KEPT)
    assert limit.details()[:2] == details(2)


def test_without_a_limit_no_row_is_counted_and_each_attempt_counts_from_zero() -> None:
    state = Supervisor()
    assert state.quarantined([0], [0], details(1)) is None
    assert (state.details(), state.quarantined_since(0, 10)) == ([], (0, []))
    state.allow(1, 0)
    assert state.quarantined([0], [0], details(1)) is None
    assert state.quarantined_since(0, 10) == (1, details(1))
    assert state.quarantined_since(1, 10) == (1, [])
    state.allow(1, 1)
    assert state.quarantined([0], [0], details(1)) is not None


def test_blocks_that_are_reported_again_count_once_and_only_for_their_attempt() -> None:
    state = Supervisor()
    for attempt, unit, ends in (("a", 0, 2), ("a", 0, 2), ("a", 5, 1), ("b", 0, 9)):
        state.read(attempt, unit, ends)
    assert (state.ends("a"), state.ends("b"), state.ends("c")) == (3, 9, 0)
    for rows in (3, 6, 3):
        state.passed("a", "preprocess", (0, 0), rows)
    state.passed("a", "preprocess", (1, 0), 4)
    state.passed("a", "ingest", (0, 0), 1)
    state.passed("b", "ingest", (0, 0), 50)
    assert state.rows_passed("a") == {"preprocess": 10, "ingest": 1}


def test_equal_incidents_are_counted_warnings_stand_once_and_the_most_memory_is_kept() -> None:
    state = Supervisor()
    for stage, what, is_warning in (("infer", "b", True), ("infer", "b", True), ("ingest", "a", False)):
        state.happened(stage, what, is_warning)
    assert state.incidents() == [
        {"stage": "infer", "what": "b", "times": 2},
        {"stage": "ingest", "what": "a", "times": 1},
    ]
    assert state.warnings() == ["b"]
    assert state.peak_device_memory() is None
    for size in (5, 9, 7):
        state.took_device_memory(size)
    assert state.peak_device_memory() == 9


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
    return in_process_of_its_own(partial(work, *arguments), lambda run, method, *given: getattr(state, method)(*given))


def test_rows_that_a_stage_quarantined_are_reported_and_those_of_earlier_stages_are_not(
    state: Supervisor, tmp_path: Path
) -> None:
    run, before = make_run(tmp_path), blocks.with_errors(numbered_block(4), {0: RowError("early")}, "preprocess")
    after = blocks.with_errors(before, {2: RowError("late")}, "infer")
    state.allow(2, 0)
    for block, earlier in ((after, before), (before, before)):
        forked(state, supervisor.report_quarantined, block, earlier, run)
    [row] = state.details()
    assert (row["row_id"], row["stage"], row["error_message"]) == ("r2", "infer", "late")
    forked(state, supervisor.report_quarantined, after, None, run)
    assert forked(state, supervisor.quarantined_since, run, 1, 9) == (2, state.details()[1:])
    one_more = blocks.with_errors(after, {3: RowError("one more")}, "infer")
    with pytest.raises(TooManyQuarantined) as stopped:
        forked(state, supervisor.report_quarantined, one_more, after, run)
    assert stopped.value.stage == "infer"


def test_a_report_of_many_rows_counts_all_and_has_the_reasons_of_the_first(state: Supervisor, tmp_path: Path) -> None:
    count = DETAILS_AT_ONCE + 5
    lost = blocks.quarantine(numbered_block(count), RowError("none of them"), "infer")
    state.allow(count, 0)
    forked(state, supervisor.report_quarantined, lost, None, make_run(tmp_path))
    assert (state.quarantined_since(0, count)[0], len(state.details())) == (count, DETAILS_AT_ONCE)


def report_all(run: Any) -> tuple[Any, ...]:
    assert supervisor.is_there(run)
    supervisor.report(run, "infer", "cannot read https://user:secret@host/x", is_warning=True)
    failed_requests.note("host: 503")
    supervisor.report_storage_problems(run, "ingest")
    supervisor.report_storage_problems(run, "ingest")
    no_log = supervisor.kept_log(run)
    supervisor.tell(run, "said", ["hello", "you"])
    log = supervisor.kept_log(run)
    return supervisor.incidents(run), supervisor.warnings(run), no_log, log, supervisor.lines_since(run, 1)


def test_an_incident_has_no_secret_and_the_log_is_written_once_there_is_one(state: Supervisor, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    incidents, warnings, no_log, log, lines = forked(state, report_all, run)
    assert incidents == [
        {"stage": "infer", "what": "cannot read https://***:***@host/x", "times": 1},
        {"stage": "ingest", "what": "waited for the storage: host: 503", "times": 1},
    ]
    assert warnings == ("cannot read https://***:***@host/x",)
    assert (no_log, log, lines) == (None, str(run.log), (2, ["you"]))
    assert run.log.read_bytes().decode().splitlines() == ["hello", "you"]


def test_without_a_supervisor_reports_are_dropped(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert not supervisor.is_there(run)
    supervisor.report(run, "infer", "nothing hears this")
    supervisor.leave(run, "worker")
    supervisor.report_quarantined(blocks.quarantine(numbered_block(2), RowError("x"), "infer"), None, run)
    assert (supervisor.incidents(run), supervisor.warnings(run)) == ([], ())
    assert supervisor.quarantined_since(run, 0, 5) == (0, [])
    assert supervisor.lines_since(run, 0) == (0, [])
