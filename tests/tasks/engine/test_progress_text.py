"""The facts of a progress as texts."""

import pytest

from overnight.tasks.engine.progress import Interval, Progress, StageProgress
from overnight.tasks.engine.progress_text import bytes_text, duration, facts_of, left_of, line_of, rows_of

STAGES = {"ingest": StageProgress(202), "infer": StageProgress(50, 2.04), "write": StageProgress(0)}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min 20 s"), (3599.6, "1 h"), (7500, "2 h 5 min")],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_bytes_have_binary_units() -> None:
    assert [bytes_text(size) for size in (10, 2048, 5 * 2**20, 5.5 * 2**30)] == [
        "10 B",
        "2.0 KiB",
        "5.0 MiB",
        "5.5 GiB",
    ]


def test_an_interval_of_one_length_is_not_written_twice() -> None:
    assert left_of(Interval(8.2, 7.9, 8.4)) == "about 8 s left (80 %: 8 s)"
    assert left_of(None) == ""


def test_a_run_that_takes_longer_than_its_interval_has_no_time_left() -> None:
    assert left_of(Interval(0.0, 0.0, 9.0)) == "about 0 s left (80 %: 0 s to 9 s)"
    assert left_of(Interval(0.0, 0.0, 0.3)) == "it takes longer than forecast"


def test_the_line_of_a_running_stream_has_rows_and_rates() -> None:
    progress = Progress(9.0, STAGES, 202)
    assert line_of(progress) == "ingest: 202 of 202 rows · infer: 50 of 202 rows, 2.0/s · write: 0 of 202 rows"
    assert rows_of(Progress(9.0, STAGES), "infer") == "50 rows, 2.0/s"


def test_in_the_end_rows_that_ended_in_an_earlier_stage_are_counted() -> None:
    stages = {"ingest": StageProgress(202), "infer": StageProgress(200), "write": StageProgress(200)}
    done = Progress(9.0, stages, 202, is_complete=True)
    assert line_of(done) == "ingest: 202 rows · infer: 200 rows; 2 ended before it · write: 200 rows; 2 ended before it"


def test_facts_without_a_value_are_left_out() -> None:
    assert facts_of(Progress(9.0, STAGES, 202, load={"memory_bytes": None})) == {}
    assert facts_of(Progress(load={"devices": 1.0, "devices_busy": None}))["busy"] == "1 device in use"
