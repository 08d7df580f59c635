"""The stages of a run on the axis of its time, with their rates, their work and their incidents."""

import pytest

from overnight.flows.report.timeline import arrange
from tests.flows.report.runs import receipt_of


def test_stages_overlap_on_the_axis_of_the_run() -> None:
    incidents = [{"stage": "infer", "what": "a worker died", "times": 3}, {"stage": "infer", "what": "a store"}]
    timeline = arrange(receipt_of("2026-01-01", incidents=incidents), ["20260101T000000-aaaaaa", "odd"])
    ingest, infer = timeline.stages
    assert (ingest.start, ingest.width, ingest.share) == (0.1, 0.6, 0.25)
    assert (infer.start, infer.width, infer.share) == (0.2, 0.5, 0.75)
    assert (infer.rows_per_second, infer.incidents, ingest.incidents) == (0.2, 4, 0)
    assert (timeline.seconds, timeline.seconds_before, timeline.seconds_after) == (100.0, 10.0, 30.0)
    assert timeline.attempts == ("2026-01-01 00:00:00", "odd")


@pytest.mark.parametrize("field", ["started_at", "stages"])
def test_an_old_receipt_without_times_has_no_bars(field: str) -> None:
    receipt = receipt_of("2026-01-01")
    del receipt[field]
    assert not any(stage.width for stage in arrange(receipt).stages)
