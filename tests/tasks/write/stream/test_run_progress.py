"""The progress of a run, from the counts of its stream and of its staged parts."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.engine.progress import Progress
from overnight.tasks.engine.progress_text import line_of
from overnight.tasks.engine.stream import Streamed
from overnight.tasks.resources.sampler import Sample
from overnight.tasks.state.manifest import COUNTS, UNITS
from overnight.tasks.state.read_plan import PENDING, EarlierRows, stream_order
from overnight.tasks.state.run import now, timeline_of
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import Incident, Snapshot
from overnight.tasks.write.stream.progress import Moment
from overnight.tasks.write.stream.run_progress import SECONDS_BETWEEN, RunProgress, Timeline, with_passed, without_ends
from overnight.tasks.write.stream.staging import Staged
from tests.tasks.runs import make_run

STAGE_ROWS = {"ingest": 7, "infer": 5}


def moment(rows: dict[str, int], load: Sample = MappingProxyType({}), is_complete: bool = False) -> Moment:
    streamed = Streamed(times={"infer": ("t1", "t2")}, samples={"seconds": [1.0]})
    return Moment(1.0, rows, "", load, streamed, is_complete, is_complete)


def test_marks_of_files_ends_are_no_rows_of_a_stage() -> None:
    assert without_ends({"ingest": 404, "infer": 101}, 4) == {"ingest": 400, "infer": 100}
    assert without_ends({"ingest": 3}, 3) == {"ingest": 0}
    assert without_ends({}, 4) == {}


def test_rows_inside_a_worker_count_for_the_stages_that_they_have_passed() -> None:
    rows = {"ingest": 60, "preprocess": 60, "infer": 10}  # as Ray Data counts them
    assert with_passed(rows, {"ingest": 40, "preprocess": 25}) == {"ingest": 40, "preprocess": 25, "infer": 10}
    assert with_passed(rows, {"preprocess": 5}) == {"ingest": 60, "preprocess": 10, "infer": 10}
    assert with_passed(rows, {}) == rows


@pytest.fixture
def of_run(tmp_path: Path) -> Any:
    """Make the progress of a run of one file of 100 rows, of which an earlier attempt has settled 40."""

    def make(rows: int | None = 100) -> tuple[RunProgress, list[Progress], Any]:
        run = replace(make_run(tmp_path), started_at=now())
        unit = {"unit": [0], "path": ["a"], "uri": ["a"], "size": [900], "first_row": [0], "rows": [rows]}
        unit |= {"version": [""], "row_group": [None], "settled": [[0, 40]]}
        pending = pa.table({name: unit[name] for name in PENDING.names}, PENDING)
        left = np.array([60]) if rows else None
        stream_order(run.order, [pending], np.zeros(1, np.int64), np.array([900]), left, EarlierRows(40, 3))
        counts = pending.select(UNITS.names).select(COUNTS)
        shown: list[Progress] = []
        staging: Any = SimpleNamespace(staged=Staged(), begin_if_due=lambda: None)
        return RunProgress(run, counts, staging, shown.append), shown, staging

    return make


def test_rows_of_earlier_attempts_are_done_from_the_start(of_run: Any) -> None:
    progress, shown, staging = of_run()
    staging.staged = Staged(rows=dict.fromkeys(("ingest", "infer", "write"), 5), filtered=2, tokens=9, cost=0.5)
    progress.look(moment({"ingest": 30, "infer": 20}, {"cpus_busy": 0.5}))
    [first] = shown
    assert {name: stage.rows for name, stage in first.stages.items()} == {"ingest": 70, "infer": 60, "write": 45}
    assert (first.total, first.resumed, first.filtered, first.quarantined) == (100, 40, 2, 3)
    assert (first.tokens, first.cost, first.load) == (9, 0.5, {"cpus_busy": 0.5})


def test_in_the_end_the_staged_parts_have_the_rows(of_run: Any) -> None:
    progress, shown, staging = of_run()
    progress.look(moment({"ingest": 64, "infer": 60}))
    assert shown[0].stages["ingest"].rows == 100  # Ray Data counts a weight as a row
    staging.staged = Staged(rows={"ingest": 60, "preprocess": 0, "infer": 59, "write": 58})
    progress.look(moment({"ingest": 64, "infer": 60}, is_complete=True))
    assert {name: stage.rows for name, stage in shown[1].stages.items()} == {"ingest": 100, "infer": 99, "write": 98}
    assert shown[1].share("write") == 1.0
    assert line_of(shown[1]).startswith(
        "ingest: 100 rows · infer: 99 rows; 1 ended before it · write: 98 rows; 2 ended"
    )


def test_the_last_count_of_files_of_unknown_length_is_not_that_of_ray_data(of_run: Any) -> None:
    progress, shown, staging = of_run(rows=None)
    progress.look(moment({"ingest": 64, "infer": 60}))  # with weights
    staging.staged = Staged(rows={"ingest": 50, "preprocess": 0, "infer": 50, "write": 50})
    progress.look(moment({"ingest": 64, "infer": 60}, is_complete=True))
    assert line_of(shown[1]).startswith("ingest: 90 rows · infer: 90 rows · write: 90 rows")


def test_files_of_unknown_length_have_no_total(of_run: Any) -> None:
    progress, shown, _ = of_run(rows=None)
    progress.look(moment({"ingest": 30}))
    assert (shown[0].total, shown[0].share("ingest")) == (None, None)


def test_rows_of_earlier_attempts_are_shown_also_if_the_rows_of_files_are_unknown(of_run: Any) -> None:
    progress, shown, _ = of_run(rows=None)
    progress.look(moment({"ingest": 30}))
    assert (shown[0].resumed, shown[0].stages["ingest"].rows) == (40, 70)
    assert "40 resumed" in line_of(shown[0])


def test_the_last_incident_has_its_stage(of_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, shown, _ = of_run()
    last = Snapshot(last_incident=Incident("infer", "a worker died"))
    monkeypatch.setattr(supervisor, "snapshot", lambda run: last)
    progress.look(moment({"ingest": 1}))
    assert shown[0].incident == "infer: a worker died"


def test_a_run_has_the_timeline_of_its_last_attempt_and_none_of_earlier_runs(tmp_path: Path) -> None:
    run = replace(make_run(tmp_path), attempt="20261119T020000-aaaaaa", started_at="2026-11-19T02:00:00Z")
    assert timeline_of(run) == {}
    streamed = Streamed(times={"infer": ("t1", "t2")}, samples={"seconds": [1.0, 2.0]})
    Timeline(run).finish(streamed, STAGE_ROWS)
    stages = {"ingest": {"rows": 7, "started_at": None, "finished_at": None}}
    stages["infer"] = {"rows": 5, "started_at": "t1", "finished_at": "t2"}
    expected = {"started_at": run.started_at, "stages": stages, "samples": {"seconds": [1.0, 2.0]}}
    assert timeline_of(run) == expected
    Timeline(replace(run, attempt="20261119T020500-bbbbbb")).finish(streamed, {"ingest": 9})
    assert timeline_of(run)["stages"]["ingest"]["rows"] == 9
    assert timeline_of(replace(run, attempt="20261119T030000-cccccc")) == {}


def test_the_file_is_written_every_ten_seconds_and_at_the_end(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    timeline = Timeline(run)
    rows = []
    for count, seconds in enumerate((0.0, SECONDS_BETWEEN - 1, SECONDS_BETWEEN)):
        timeline.keep(Streamed(), {"infer": count}, seconds)
        assert timeline.writing
        timeline.writing.join()
        rows.append(timeline_of(run)["stages"]["infer"]["rows"])
    timeline.finish(Streamed(), {"infer": 3})
    assert [*rows, timeline_of(run)["stages"]["infer"]["rows"]] == [0, 0, 2, 3]


def test_a_storage_that_fails_costs_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    Path(str(run.state)).mkdir(parents=True, exist_ok=True)
    Path(str(run.ledger)).parent.mkdir(parents=True, exist_ok=True)
    Path(str(run.ledger)).write_text("a file, where a folder is needed")
    Timeline(run).finish(Streamed(), STAGE_ROWS)
