"""The timeline of an attempt, in a file beside its other files."""

from dataclasses import replace
from pathlib import Path

from overnight.tasks.engine.stream import Streamed
from overnight.tasks.state.run import timeline_of
from overnight.tasks.write.stream.timeline import SECONDS_BETWEEN, Timeline
from tests.tasks.runs import make_run

ROWS = {"ingest": 7, "infer": 5}


def test_a_run_has_the_timeline_of_its_last_attempt_and_none_of_earlier_runs(tmp_path: Path) -> None:
    run = replace(make_run(tmp_path), attempt="20261119T020000-aaaaaa", started_at="2026-11-19T02:00:00Z")
    assert timeline_of(run) == {}
    streamed = Streamed(times={"infer": ("t1", "t2")}, samples={"seconds": [1.0, 2.0]})
    Timeline(run).finish(streamed, ROWS)
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
    Timeline(run).finish(Streamed(), ROWS)
