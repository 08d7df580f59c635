"""The stages of a run on the axis of its time, with their rates, their work and their incidents."""

import pytest

from overnight.flows.report.timeline import Attempt, arrange
from tests.flows.report.runs import receipt_of


def test_stages_overlap_on_the_axis_of_the_run() -> None:
    incidents = [{"stage": "infer", "what": "a worker died", "times": 3}, {"stage": "infer", "what": "a store"}]
    timeline = arrange(receipt_of("2026-01-01", incidents=incidents), ["20260101T000000-aaaaaa", "odd"])
    ingest, infer = timeline.stages
    assert (ingest.start, ingest.width, ingest.share) == (0.1, 0.6, 0.25)
    assert (infer.start, infer.width, infer.share) == (0.2, 0.5, 0.75)
    assert (infer.rows_per_second, infer.incidents, ingest.incidents) == (0.2, 4, 0)
    assert (timeline.seconds, timeline.seconds_before) == (100.0, 10.0)
    assert timeline.seconds_after == pytest.approx(30)
    assert timeline.attempts == [Attempt("2026-01-01 00:00:00", 0.0), Attempt("odd")]


def test_incidents_and_attempts_have_places_if_they_are_in_the_time_of_the_run() -> None:
    incidents = [
        {"stage": "infer", "what": what, "at": f"2026-01-0{day}T00:00:40Z"} for day, what in enumerate("ab", 1)
    ]
    timeline = arrange(receipt_of("2026-01-01", incidents=incidents), ["20251231T000000-a", "20260101T000050-b"])
    assert [stage.marks for stage in timeline.stages] == [[], [0.4]]
    assert [attempt.mark for attempt in timeline.attempts] == [None, 0.5]


def test_samples_are_curves_on_the_axis_of_the_run() -> None:
    samples = {"started_at": "2026-01-01T00:00:10.000Z", "seconds": [0, 10, 20], "cpus_busy": [0.2, None, 0.8]}
    samples |= {"memory_bytes": [50, 100, 25], "rows_ingest": [0, 90, 90], "rows_infer": [0, 20, 60]}
    rate, cpus, memory = arrange(receipt_of("2026-01-01", samples=samples)).curves
    assert (rate.name, rate.points, rate.largest) == ("rows/s", [(0.2, 0.5), (pytest.approx(0.3), 1.0)], 4.0)
    assert (cpus.points, cpus.largest) == ([(0.1, 0.2), (pytest.approx(0.3), 0.8)], 0.8)
    assert [height for _, height in memory.points] == [0.5, 1.0, 0.25]


@pytest.mark.parametrize("samples", [{}, {"started_at": None}, {"started_at": "2026-01-01T00:00:10Z", "seconds": [1]}])
def test_without_samples_there_are_no_curves(samples: dict[str, object]) -> None:
    assert arrange(receipt_of("2026-01-01", samples=samples)).curves == []


@pytest.mark.parametrize("field", ["started_at", "stages"])
def test_an_old_receipt_without_times_has_no_bars(field: str) -> None:
    receipt = receipt_of("2026-01-01")
    del receipt[field]
    assert not any(stage.width for stage in arrange(receipt).stages)
