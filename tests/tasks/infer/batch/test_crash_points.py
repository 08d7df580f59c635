"""The seven moments at which a client of batches can die: real processes, killed by the server at that moment."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.infer.batch.client import ROWS, answered, keys
from tests.tasks.infer.batch_server import BatchServer, batch_server

CLIENT = [sys.executable, "-m", "tests.tasks.infer.batch.client"]


OTHERS = ("mistral", "anthropic", "gemini")


@pytest.fixture(params=["openai", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def server(request: pytest.FixtureRequest) -> Iterator[BatchServer]:
    with batch_server(request.param) as server:
        yield server


class Client:
    """Runs the client once, and ends it at a moment of the server if a test says so."""

    def __init__(self, server: BatchServer, folder: Path) -> None:
        self.server, self.folder = server, folder

    def run(self, kill_at: str = "", *settings: str) -> dict[str, Any] | None:
        """Return the record; None if the process was killed at `kill_at`."""
        begun = threading.Event()
        process: list[subprocess.Popen[str]] = []

        def kill() -> None:
            begun.wait()
            process[0].kill()
            process[0].wait()

        if kill_at:
            self.server.kill_at[kill_at] = kill
        dialect = f'dialect="{self.server.dialect}"'
        command = [*CLIENT, self.server.url, str(self.folder), dialect, *settings]
        process.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        begun.set()
        try:
            output, _ = process[0].communicate(timeout=200)
        finally:
            process[0].kill()
        if kill_at:
            assert process[0].returncode == -9, "expected a killed process"
            return None
        assert process[0].returncode == 0
        record: dict[str, Any] = json.loads(output.splitlines()[-1])
        return record


@pytest.fixture
def client(server: BatchServer, tmp_path: Path) -> Client:
    return Client(server, tmp_path)


def assert_paid_once(server: BatchServer, client: Client, record: dict[str, Any] | None) -> None:
    assert record
    assert answered(client.folder, server.dialect) == set(keys(server.dialect))
    assert sorted(server.charged) == sorted(keys(server.dialect))
    assert set(server.charged.values()) == {1}
    assert (record["charged"], record["repeated"], record["left"]) == (ROWS, 0, 0)


@pytest.mark.parametrize(
    ("moment", "files", "batches"),
    [
        ("upload-before", 3, 3),  # 1: sealed, and no file is there
        ("upload-after", 3, 3),  # 2: the file is there, its id was never seen
        ("create-before", 3, 3),  # 3: a batch was intended, and none was made
        ("create-after", 3, 3),  # 3: a batch was made, its id was never seen
    ],
)
def test_a_client_that_dies_goes_on_and_pays_each_row_once(
    server: BatchServer, client: Client, moment: str, files: int, batches: int
) -> None:
    if moment.startswith("upload") and server.dialect == "anthropic":
        pytest.skip("Anthropic has no files")
    client.run(moment)
    if server.dialect == "anthropic":
        assert_paid_once(server, client, client.run())
        assert len(server.batches) == batches
        return
    uploads = len([file for file in server.files.values() if file["purpose"] == "batch"])
    assert uploads == {"upload-before": 0, "upload-after": 1, "create-before": 1, "create-after": 1}[moment]
    assert_paid_once(server, client, client.run())
    assert len([file for file in server.files.values() if file["purpose"] == "batch"]) == files
    assert len(server.batches) == batches


def test_a_create_without_an_answer_is_searched_and_not_repeated(server: BatchServer, client: Client) -> None:
    """4: the batch exists, and the list shows it late."""
    server.faults = {0: {"create_dropped", "list_late"}, 1: {"create_503"}}
    assert_paid_once(server, client, client.run("", "poll_seconds=30"))
    assert len(server.batches) == 3


def test_a_download_that_is_cut_off_is_written_by_key(server: BatchServer, client: Client) -> None:
    """5: the process dies in the middle of a download, and the next one is cut by the server."""
    client.run("content-half")
    assert not list((client.folder / "answers").glob("batch-*.jsonl")), "a half download is not in the log"
    server.faults[1] = {"content_cut"}
    server.batches["batch-00001"].faults = {"content_cut"}
    assert_paid_once(server, client, client.run())


def test_lines_that_are_missing_doubled_or_unknown_are_a_difference_of_keys(
    server: BatchServer, client: Client
) -> None:
    """6: a row without a line is asked again, and its first answer was paid."""
    server.faults = {0: {"line_missing"}, 1: {"line_doubled"}, 2: {"line_cut"}}
    record = client.run()
    assert record
    assert answered(client.folder, server.dialect) == set(keys(server.dialect))
    assert sum(server.charged.values()) == ROWS + 2 == record["charged"]
    assert record["repeated"] == 2


def test_results_that_expired_while_nobody_looked_are_asked_again_and_counted(
    server: BatchServer, client: Client
) -> None:
    """7: one batch has expired with a third done, the results of another are deleted."""
    client.run("look")
    server.batches["batch-00000"].faults = {"expired"}
    server.batches["batch-00001"].faults = {"content_gone"}
    server.offset += 40 * 86400
    record = client.run()
    assert record
    assert answered(client.folder, server.dialect) == set(keys(server.dialect))
    states = [batch["state"] for batch in record["batches"]]
    assert states[0] in ("expired", "timeout_exceeded")
    assert set(states[1:]) <= {"completed", "success", "ended", "succeeded"}
    assert len(states) == 5
    assert sum(server.charged.values()) == ROWS + 10 == record["charged"]
    assert record["repeated"] == 10
