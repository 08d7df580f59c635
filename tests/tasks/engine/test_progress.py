"""The progress of a run follows from looks at its counts."""

from dataclasses import replace
from typing import Any

from overnight.tasks.engine.progress import (
    Interval,
    Look,
    Progress,
    StageProgress,
    never_less,
    parsed,
    progress_of,
)


def look(seconds: float, infer: int, **changes: Any) -> Look:
    return Look(seconds, {"ingest": 2 * infer, "infer": infer, "write": 0}, total=1000, **changes)


def test_a_rate_is_that_of_the_last_half_minute_and_a_stage_without_rows_has_none() -> None:
    looks = [look(0, 0), look(10, 400), look(40, 400), look(55, 550), look(70, 700)]
    stages = progress_of(looks).stages
    assert stages["infer"] == StageProgress(700, 10.0)
    assert stages["write"] == StageProgress(0, None)
    assert list(stages) == ["ingest", "infer", "write"]  # the job has no preprocess


def test_a_share_is_unknown_without_a_total_until_the_end() -> None:
    progress = progress_of([look(0, 0), look(1, 250)])
    assert progress.share("infer") == 0.25
    assert replace(progress, total=None).share("infer") is None
    assert replace(progress, total=None, is_complete=True).share("infer") == 1.0


def test_what_it_waits_for_is_named_after_five_seconds_without_a_row_and_no_longer_when_rows_move() -> None:
    still = [look(seconds, 7, wait="infer: 2 workers do not start") for seconds in range(7)]
    assert progress_of(still[:5]).waits_for == ""
    assert progress_of(still).waits_for == "infer: 2 workers do not start"
    assert progress_of([*still, look(7, 8, wait="infer: 2 workers do not start")]).waits_for == ""
    assert progress_of(still, is_complete=True).waits_for == ""


def test_counts_that_a_restarted_supervisor_lost_do_not_fall() -> None:
    first, second = look(0, 5, quarantined=3, filtered=2), look(1, 4, quarantined=0, filtered=2)
    progress = never_less(progress_of([first, second]), progress_of([first]))
    assert (progress.quarantined, progress.stages["infer"].rows) == (3, 5)


def test_no_bar_falls_back_when_an_attempt_resumes() -> None:
    before = progress_of([look(0, 0), look(10, 500)])
    resumed = never_less(progress_of([look(20, 400), look(21, 410)]), before)
    assert resumed.stages["infer"].rows == 500
    assert never_less(before, None) == before


def test_a_progress_travels_as_texts() -> None:
    progress = replace(
        progress_of([look(0, 0), look(10, 500, tokens=12, cost=0.5, incident="infer: a\x1b[2J")]),
        time_left=Interval(10.0, 8.0, 13.0),
    )
    assert parsed(progress.as_texts()) == progress
    assert parsed(Progress().as_texts()) == Progress()
    long = replace(progress, incident='\x1b"ü' * 300, waits_for="infer: " + "3 workers do not start; " * 40)
    texts = long.as_texts() | {"partition": "2026-11-17"}
    assert max(map(len, texts.values())) < 500
    assert long.waits_for.startswith(parsed(texts).waits_for)


def test_time_left_counts_down_to_zero() -> None:
    assert Interval(10, 8, 13).after(9) == Interval(1, 0, 4)
