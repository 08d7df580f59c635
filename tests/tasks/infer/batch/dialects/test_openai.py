"""The words in which providers differ from OpenAI."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tasks.infer.batch.client import ROWS, filling, keys, server_clock
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


def test_together_wraps_a_created_batch_and_shouts_its_states(server: BatchServer, tmp_path: Path) -> None:
    server.wraps_job, server.faults = True, {number: {"upper_case"} for number in range(3)}
    record = filling(server.url, tmp_path, server_clock(server.url), dialect="together").run()
    assert (record["answered"], {batch["state"] for batch in record["batches"]}) == (ROWS, {"completed"})


def test_azure_has_its_own_path(server: BatchServer, tmp_path: Path) -> None:
    filling(server.url, tmp_path, server_clock(server.url), dialect="azure").turn()
    assert {batch.endpoint for batch in server.batches.values()} == {"/chat/completions"}
    line = json.loads(server.contents["file-00000"].splitlines()[0])
    assert (line["custom_id"], line["method"], line["url"]) == (keys()[0], "POST", "/chat/completions")
