"""The words of Anthropic's batches."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.tasks.infer.batch.dialects.anthropic import AnthropicBatches
from overnight.tasks.infer.batch.provider import Batch, Phase, Result

FACTS = {"id": "b", "created_at": "2026-11-28T20:00:00.123456789Z", "results_url": "https://x/results"}
COUNTS = {"processing": 0, "succeeded": 2, "errored": 1, "canceled": 0, "expired": 0}


def batch_of(**facts: Any) -> Batch:
    connection: Any = SimpleNamespace(get=lambda _: {**FACTS, "request_counts": COUNTS, **facts})
    return AnthropicBatches(connection).look("b")


def test_an_ended_batch_has_the_word_of_its_end() -> None:
    assert batch_of(processing_status="in_progress", results_url=None).phase is Phase.OPEN
    assert batch_of(processing_status="canceling").phase is Phase.OPEN
    ended = batch_of(processing_status="ended")
    assert (ended.phase, ended.state, ended.rows, ended.completed) == (Phase.ENDED, "ended", 3, 2)
    assert (ended.label, ended.results) == (None, ("b",))
    assert batch_of(processing_status="ended", cancel_initiated_at="2026-11-28T20:00:00Z").state == "cancelled"
    assert batch_of(processing_status="ended", request_counts=COUNTS | {"expired": 4}).state == "expired"


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ({"type": "errored", "error": {"type": "error", "error": {"type": "invalid_request_error"}}}, 400),
        ({"type": "errored", "error": {"error": {"type": "overloaded_error"}}}, 529),
        ({"type": "errored", "error": {"type": "error", "error": {"type": "a new one"}}}, 500),
        ({"type": "expired"}, None),
        ({"type": "canceled"}, None),
    ],
)
def test_an_error_has_the_status_of_its_type(result: dict[str, Any], status: int | None) -> None:
    line = f'{{"custom_id": "k", "result": {json.dumps(result)}}}'.encode()
    connection: Any = SimpleNamespace(lines=lambda _: [line, b"{}"])
    read, other = AnthropicBatches(connection).results("b")
    assert isinstance(read, Result)
    assert (read.key, read.status, read.body, other) == ("k", status, None, None)
