"""A budget of real runs against a server that counts: nothing is requested above it, and a larger one goes on."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import BudgetReached
from tests import jobs
from tests.flows.conftest import RunJob, assert_settled, parquet, published, write_parquet
from tests.tasks.infer.chat_server import ChatServer, chat_server

PRICES = {"price_per_million_input_tokens": 1_000_000.0, "price_per_million_output_tokens": 2_000_000.0}
COST = 9.0  # of an answer: 7 tokens in, and one out
AT_ONCE = 4


def texts_in(folder: Path, count: int) -> list[str]:
    texts = [f"t{number:04}" for number in range(count)]
    write_parquet(folder / "in/a.parquet", n=range(count), text=texts)
    return texts


def asking(server: ChatServer, **settings: Any) -> dict[str, Any]:
    common = {"kind": "openai", "model": "small", "user": "{text}", "base_url": server.url, "max_new_tokens": 4}
    return common | {"max_concurrent_requests": AT_ONCE, **PRICES, **settings}


def job_of(folder: Path, *models: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return jobs.job(folder, source=parquet(folder), inference=list(models), **sections)


def failure_in(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "out/_overnight/all/failure.json").read_text())
    return record


def test_a_run_stops_at_its_cost_and_a_larger_budget_asks_each_row_once(tmp_path: Path, run_job: RunJob) -> None:
    texts = texts_in(tmp_path, 60)
    with chat_server() as server:
        server.seconds = 0.02
        with pytest.raises(BudgetReached, match="budget.cost: expected at most 200 for this partition, found 198") as e:
            run_job(job_of(tmp_path, asking(server), budget={"cost": 200}))
        assert "22 answers are kept" in str(e.value)
        assert len(server.answered) == 22
        assert failure_in(tmp_path)["error_type"] == "BudgetReached"
        assert not list((tmp_path / "out").glob("*.parquet"))
        receipt = run_job(job_of(tmp_path, asking(server), budget={"cost": 10_000}))
        requests = server.requests()
    assert_settled(receipt, written=60)
    assert requests == Counter(texts)
    assert receipt["spent"] == {"answers": 60, "tokens": 480, "cost": pytest.approx(60 * COST)}
