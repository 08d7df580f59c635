"""The words of Mistral's batches."""

from types import SimpleNamespace
from typing import Any

import pytest

from overnight.tasks.infer.batch.dialects.mistral import MistralBatches
from overnight.tasks.infer.batch.provider import Batch, Phase


def batch_of(status: str, **facts: Any) -> Batch:
    item = {"id": "b", "status": status, "created_at": 1, "succeeded_requests": 2, "errors": [], **facts}
    return MistralBatches(SimpleNamespace(get=lambda _: item), "m", "24h").look("b")  # type: ignore[arg-type]


def test_states_have_a_phase() -> None:
    for status in ("QUEUED", "RUNNING", "CANCELLATION_REQUESTED"):
        assert batch_of(status).phase is Phase.OPEN
    for status in ("SUCCESS", "TIMEOUT_EXCEEDED", "CANCELLED"):
        batch = batch_of(status, output_file="o", error_file="e")
        assert (batch.phase, batch.state, batch.results) == (Phase.ENDED, status.lower(), ("o", "e"))
    failed = batch_of("FAILED", errors=[{"message": "bad line", "count": 3}])
    assert (failed.phase, failed.problem) == (Phase.FAILED, "bad line")
    assert batch_of("FAILED", error_file="e").phase is Phase.ENDED


@pytest.mark.parametrize(("window", "hours"), [("24h", 24), ("7d", 168)])
def test_the_window_is_in_hours_and_the_model_is_named(window: str, hours: int) -> None:
    bodies: list[dict[str, Any]] = []

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        bodies.append(body)
        return {"id": "b", "status": "QUEUED"}

    MistralBatches(SimpleNamespace(post=post), "m", window).create("f", "label", bytes)  # type: ignore[arg-type]
    assert bodies[0]["timeout_hours"] == hours
    assert (bodies[0]["model"], bodies[0]["input_files"], bodies[0]["metadata"]) == ("m", ["f"], {"overnight": "label"})
