"""A budget of real runs against a server that counts: nothing is requested above it, and a larger one goes on."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import BudgetReached
from tests import jobs
from tests.flows.conftest import RunJob, assert_settled, parquet, write_parquet
from tests.tasks.infer.chat_server import ChatServer, chat_server, completion

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
    texts, checks = texts_in(tmp_path, 60), {"max_quarantined": 0.1}
    with chat_server() as server:
        server.seconds, server.always = 0.02, {texts[3]: completion(None)}  # which is paid for, and no answer
        with pytest.raises(BudgetReached) as error:
            run_job(job_of(tmp_path, asking(server), checks=checks, budget={"cost": 200}))
        assert "budget.cost: expected at most 200 for this partition, found 198 spent" in str(error.value)
        assert "Raise budget.cost and run again: 22 answers are kept. Nothing was published." in str(error.value)
        assert len(server.answered) == 22
        assert failure_in(tmp_path)["error_type"] == "BudgetReached"
        assert not list((tmp_path / "out").glob("*.parquet"))
        receipt = run_job(job_of(tmp_path, asking(server), checks=checks, budget={"cost": 10_000}))
        requests = server.requests()
    assert_settled(receipt, written=59)
    assert requests == Counter(texts)
    assert receipt["spent"] == {"answers": 60, "tokens": 480, "cost": pytest.approx(60 * COST)}


@pytest.mark.slow
def test_two_workers_of_two_models_share_one_budget(tmp_path: Path, run_job: RunJob) -> None:
    texts_in(tmp_path, 400)
    with chat_server() as server:
        server.seconds = 0.02
        first = asking(server, name="first", workers=2)
        second = asking(server, name="second", user="{first_generated_text}")
        with pytest.raises(BudgetReached, match=r"budget\.tokens: expected at most 2,000"):
            run_job(job_of(tmp_path, first, second, budget={"tokens": 2000}))
        answers, spent = len(server.answered), failure_in(tmp_path)["spent"]
    bound = 3 * AT_ONCE * 12  # requests under way, each with 7 tokens in and at most 5 out
    assert 2000 - 16 <= spent["tokens"] <= 2000 + bound
    assert spent["answers"] == answers, "what was under way has ended, and is kept"


@pytest.mark.slow
def test_a_run_stops_after_its_minutes_and_another_run_goes_on(tmp_path: Path, run_job: RunJob) -> None:
    texts = texts_in(tmp_path, 3000)
    with chat_server() as server:
        server.seconds = 0.1
        with pytest.raises(BudgetReached, match=r"budget\.minutes: expected a run of at most 0\.5 minutes"):
            run_job(job_of(tmp_path, asking(server), budget={"minutes": 0.5}))
        spent = failure_in(tmp_path).get("spent", {"answers": 0})  # on a slow machine, Ray starts for half a minute
        assert spent["answers"] == len(server.answered) < 3000
        server.seconds = 0.0
        receipt = run_job(job_of(tmp_path, asking(server), budget={"minutes": 30}))
        requests = server.requests()
    assert_settled(receipt, written=3000)
    assert requests == Counter(texts)


def test_the_minutes_of_a_job_without_endpoints_end_it_too(tmp_path: Path, run_job: RunJob) -> None:
    texts_in(tmp_path, 10)
    with pytest.raises(BudgetReached, match=r"budget\.minutes"):
        run_job(job_of(tmp_path, budget={"minutes": 0.0001}))
    assert not list((tmp_path / "out").glob("*.parquet"))
    assert_settled(run_job(job_of(tmp_path)), written=10)
