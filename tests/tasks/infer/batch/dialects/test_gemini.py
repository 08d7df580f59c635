"""The words of Gemini's batches."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.tasks.infer.batch.dialects.gemini import GeminiBatches
from overnight.tasks.infer.batch.provider import Batch, Phase


def batch_of(state: str, **facts: Any) -> Batch:
    output = facts.pop("output", {})
    item = {"name": "batches/b", "metadata": {"state": state, "displayName": "label", "output": output}, **facts}
    return GeminiBatches(SimpleNamespace(get=lambda _: item), "m").look("batches/b")  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["BATCH_STATE_", "JOB_STATE_"])
def test_states_have_two_prefixes(prefix: str) -> None:
    assert batch_of(f"{prefix}PENDING").phase is Phase.OPEN
    assert batch_of(f"{prefix}RUNNING").phase is Phase.OPEN
    for word in ("succeeded", "cancelled", "expired"):
        batch = batch_of(f"{prefix}{word.upper()}", output={"responsesFile": "files/r"})
        assert (batch.phase, batch.state, batch.results) == (Phase.ENDED, word, ("files/r",))
    failed = batch_of(f"{prefix}FAILED", error={"code": 3, "message": "no such field"})
    assert (failed.phase, failed.problem) == (Phase.FAILED, "no such field")
    assert batch_of(f"{prefix}FAILED", output={"responsesFile": "files/r"}).phase is Phase.ENDED


@pytest.mark.parametrize(("code", "status"), [(3, 400), (8, 429), (14, 500), (400, 400), (503, 503), (None, 500)])
def test_codes_of_grpc_and_statuses_are_statuses(code: int | None, status: int) -> None:
    line = json.dumps({"key": "k", "error": {"code": code, "message": "odd"}}).encode()
    connection: Any = SimpleNamespace(lines=lambda *_, **__: [line, b"{"])
    read, other = GeminiBatches(connection, "m").results("files/r")
    assert read
    assert (read.key, read.status, other) == ("k", status, None)
