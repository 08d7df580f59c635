"""When the batches of a run must end, and which settings no provider takes."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from overnight.tasks.infer.batch.settings import BatchSettings


def test_finish_by_is_the_next_such_time_after_the_beginning() -> None:
    began = datetime(2026, 11, 28, 22, 0, tzinfo=UTC)  # 23:00 in Berlin
    zone = ZoneInfo("Europe/Berlin")
    assert BatchSettings().deadline(began, zone) is None
    morning = BatchSettings(finish_by="05:30").deadline(began, zone)
    assert morning == datetime(2026, 11, 29, 4, 30, tzinfo=UTC).timestamp()
    evening = BatchSettings(finish_by="23:30").deadline(began, zone)
    assert evening == datetime(2026, 11, 28, 22, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"finish_by": "5 o'clock"}, "expected a time of day such as 05:30"),
        ({"dialect": "together", "megabytes": 150}, "together takes files of at most 100, found 150"),
        (
            {"dialect": "anthropic", "rows": 100_001},
            "anthropic takes at most 100,000 requests in a batch, found 100,001",
        ),
        ({"dialect": "gemini", "window": "7d"}, "gemini has a window of its own, found 7d. Leave it out"),
    ],
)
def test_settings_that_no_provider_takes_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchSettings(**settings)
