"""Batches beside a budget: what is sent fits below it, and a larger budget goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from overnight.tasks.errors import BudgetReached
from tests.tasks.infer.batch import client
from tests.tasks.infer.batch.client import ROWS, answered, filling, server_clock
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


# A request is estimated as 10 tokens, 2 a million: 100e-6 for a part of ten, at half price. Its answer costs 13e-6 / 2.
def test_parts_are_sent_one_after_the_other_while_the_estimate_of_two_does_not_fit(
    server: BatchServer, tmp_path: Path
) -> None:
    current = filling(server.url, tmp_path, server_clock(server.url), budget={"cost": 280e-6})
    current.turn()
    assert len(server.batches) == 2
    assert current.progress().endswith("the budget may not suffice for a part, which waits")
    assert current.run()["answered"] == ROWS


def test_at_the_limit_nothing_is_sent_and_a_larger_budget_goes_on(server: BatchServer, tmp_path: Path) -> None:
    clock = server_clock(server.url)
    with pytest.raises(BudgetReached, match=r"budget\.cost: expected at most 0\.00016 .* found 6\.5e-05 spent"):
        filling(server.url, tmp_path, clock, budget={"cost": 160e-6}).run()
    assert len(server.batches) == 1
    assert len(answered(tmp_path)) == 10
    record = filling(server.url, tmp_path, clock, budget={"cost": 1.0}).run()
    assert (record["answered"], record["charged"], len(server.batches)) == (ROWS, ROWS, 3)


def test_tokens_have_a_limit_too(server: BatchServer, tmp_path: Path) -> None:
    with pytest.raises(BudgetReached, match=r"budget\.tokens: expected at most 150 .* found 100 spent"):
        filling(server.url, tmp_path, server_clock(server.url), budget={"tokens": 150}).run()
    assert len(server.batches) == 1


def test_charged_requests_without_an_answer_count(server: BatchServer, tmp_path: Path) -> None:
    server.faults = {0: {"content_gone"}}
    with pytest.raises(BudgetReached):
        filling(server.url, tmp_path, server_clock(server.url), budget={"cost": 250e-6}, then="online").run()
    assert len(server.batches) == 2


def test_once_100_answers_are_known_their_mean_is_the_estimate(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maximum is 1,000e-6 for the second part of 100, and its answers cost 650e-6."""
    monkeypatch.setattr(client, "ROWS", 200)
    client.bodies.cache_clear()
    client.keys.cache_clear()
    try:
        current = filling(server.url, tmp_path, server_clock(server.url), budget={"cost": 1400e-6}, rows=100)
        assert current.run()["answered"] == 200
        assert len(server.batches) == 2
    finally:
        client.bodies.cache_clear()
        client.keys.cache_clear()


def test_with_a_budget_the_first_part_is_small(tmp_path: Path) -> None:
    current = filling("http://127.0.0.1:9/v1", tmp_path, client.Clock(), first_rows=4, rows=20)
    assert [part.rows for part in current.items.values()] == [4, 20, 6]
