"""The batches of creates that had no answer: found by their label or their rows, ended, and counted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tasks.infer.batch.client import ROWS, answered, filling, keys, server_clock
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


def test_a_second_batch_of_a_part_is_ended_and_counted(server: BatchServer, tmp_path: Path) -> None:
    """The list shows the first one later than a create is searched for."""
    server.faults = {0: {"create_dropped", "list_late"}}
    clock = server_clock(server.url)
    current = filling(server.url, tmp_path, clock)
    current.turn()
    server.batches["batch-00000"].created_at += 400  # visible 520 s after its create
    server.offset += 301
    record = current.run()
    assert len(server.batches) == 4
    assert record["charged"] == sum(server.charged.values())
    assert record["repeated"] == record["charged"] - ROWS > 0


def test_rows_that_only_a_second_batch_answered_are_not_left(server: BatchServer, tmp_path: Path) -> None:
    server.faults = {0: {"create_dropped", "list_late"}, 3: {"content_gone"}}
    current = filling(server.url, tmp_path, server_clock(server.url), then="online")
    current.turn()
    server.batches["batch-00000"].created_at += 400  # visible 520 s after its create
    server.offset += 301
    record = current.run()
    assert (record["answered"], record["left"], record["repeated"]) == (ROWS, 0, 10)


def test_a_batch_without_a_label_is_found_by_its_number_of_rows_and_its_results(tmp_path: Path) -> None:
    with batch_server("anthropic") as server:
        clock = server_clock(server.url)
        current = filling(server.url, tmp_path, clock, dialect="anthropic")
        body = '{"messages": [{"role": "user", "content": "of another run"}]}'
        others = b"".join(current.provider.line(f"other-{number}", body) for number in range(10))
        foreign = current.provider.create("", "", lambda: others)
        server.faults = {1: {"create_dropped", "list_late"}}
        current.turn()
        server.offset += 400
        current.turn()
        assert current.items["00000"].state == "creating", "one of two open batches with ten rows may be its own"
        record = current.run()
        assert (len(server.batches), record["charged"], record["repeated"]) == (4, ROWS, 0)
        assert server.batches[foreign.id].cancelled_at is None
        assert answered(tmp_path, "anthropic") == set(keys("anthropic"))


def test_a_second_batch_without_a_label_is_counted(tmp_path: Path) -> None:
    """The list shows the first one later than a create is searched for, and its results name its rows."""
    with batch_server("anthropic") as server:
        server.faults = {0: {"create_dropped", "list_late"}}
        clock = server_clock(server.url)
        current = filling(server.url, tmp_path, clock, dialect="anthropic")
        current.turn()
        server.batches["batch-00000"].created_at += 400  # visible 520 s after its create
        server.offset += 301
        record = current.run()
        assert len(server.batches) == 4
        assert (record["charged"], record["repeated"]) == (sum(server.charged.values()), 10)


def test_a_batch_that_charged_and_shows_no_result_counts_as_that_of_a_create_without_an_answer(tmp_path: Path) -> None:
    with batch_server("anthropic") as server:
        server.faults = {0: {"create_503", "no_files"}}
        record = filling(server.url, tmp_path, server_clock(server.url), dialect="anthropic").run()
        assert record["charged"] == sum(server.charged.values()) == ROWS + 10
        assert (record["repeated"], record["left"]) == (10, 0)
