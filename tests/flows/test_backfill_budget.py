"""What is left of a backfill's budget: what its runs paid counts, and the next one gets no more than the rest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.backfill_budget import BudgetLeft, ended_by
from overnight.flows.backfill_plan import Step
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus
from overnight.flows.runs.run import describe_run
from overnight.tasks.engine.progress import Interval
from overnight.tasks.state.run import FORMAT_VERSION, write_json
from overnight.tasks.workers.spending import Amount, Paid, budget_reached, minutes_reached
from tests import jobs

DAY = "2026-03-01"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    prices = {"price_per_million_input_tokens": 1.0, "price_per_million_output_tokens": 1.0}
    model = {"kind": "openai", "model": "small", "user": "{id}", "base_url": "http://127.0.0.1:9/v1", **prices}
    return jobs.load(tmp_path, inference=[model], budget={"cost": 30})


def step(cost: float | None = None, seconds: float | None = None, failure: dict[str, Any] | None = None) -> Step:
    time = None if seconds is None else Interval(seconds, seconds, seconds)
    return Step(PartitionStatus(DAY, "missing", failure=failure), False, 10, time, cost)


def test_a_step_begins_if_its_estimate_fits_or_is_unknown_while_something_is_left() -> None:
    budget = BudgetLeft({"cost": 25.0, "minutes": 10.0})
    assert budget.refusal(step(25.0, 590)) == ""
    assert budget.refusal(step()) == ""
    assert budget.refusal(step(25.1)).startswith("budget.cost: 25 of 25 is left")
    assert "budget.minutes" in budget.refusal(step(1.0, 601))
    budget.add({"cost": 25.0})
    assert budget.refusal(step()) == "budget.cost: nothing is left of 25"
    assert BudgetLeft({}).refusal(step(1e9, 1e9)) == ""


def test_a_step_without_an_estimate_needs_what_the_newest_run_took() -> None:
    budget = BudgetLeft({"cost": 25.0})
    budget.charge(step(), {"generation": "g", "seconds": 60.0, "spent": {"cost": 13.0}})
    assert budget.refusal(step()) == f"budget.cost: 12 of 25 is left, and {DAY} needs about 13"
    assert budget.refusal(step(11.0)) == ""


def test_minutes_pass_without_a_run() -> None:
    budget = BudgetLeft({"minutes": 1.0})
    budget.start -= 61
    assert budget.refusal(step()) == "budget.minutes: nothing is left of 1"


def test_a_run_gets_the_rest_unless_its_own_budget_is_smaller(job: Job) -> None:
    budget = BudgetLeft({"cost": 40.0})
    assert budget.settings(job, step()) == []
    budget.charge(step(), {"generation": "g", "spent": {"answers": 3, "tokens": 7, "cost": 15.5}})
    assert budget.settings(job, step()) == ["budget.cost=24.500000000"]
    assert budget.settings(job.model_copy(update={"budget": type(job.budget)()}), step()) == [
        "budget.cost=24.500000000"
    ]
    assert (budget.spent, budget.rest()) == ({"cost": 15.5, "tokens": 7.0}, {"cost": 24.5})


def test_only_a_limit_of_the_backfill_ends_it_and_not_one_of_its_job(job: Job) -> None:
    message = budget_reached("cost", 30.0, Paid(3, Amount(cost=29.5)))
    settings = BudgetLeft({"cost": 100.0, "minutes": 300.0}).settings(job, step())
    assert ended_by(settings, message) == "", "the job's own limit of 30 is smaller"
    assert ended_by(BudgetLeft({"cost": 20.0}).settings(job, step()), message) == message
    assert ended_by(settings, minutes_reached(300.0))
    assert ended_by([], message) == ""


def test_a_run_that_resumes_pays_only_for_itself_and_may_spend_the_whole_rest(job: Job) -> None:
    run = describe_run(job, DAY)
    failure = {"generation": "g1", "error_type": "BudgetReached", "spent": {"answers": 2, "cost": 12.0}}
    resumed = step(failure=failure)
    budget = BudgetLeft({"cost": 10.0})
    assert budget.settings(job, resumed) == ["budget.cost=10.000000000"], "no generation that it would resume"
    record = {"fingerprint": run.fingerprint, "format_version": FORMAT_VERSION}
    write_json(run.ledger / "generations/g1/generation.json", record)
    assert budget.settings(job, resumed) == ["budget.cost=22.000000000"]
    other = replace(resumed, entry=replace(resumed.entry, failure=failure | {"error_type": "CheckFailed"}))
    assert budget.settings(job, other) == ["budget.cost=10.000000000"], "other inputs begin another generation"
    budget.charge(resumed, {"generation": "g1", "spent": {"answers": 3, "cost": 18.0}})
    assert budget.spent["cost"] == 6.0
    budget.charge(resumed, {"generation": "g2", "spent": {"answers": 3, "cost": 1.0}})
    budget.charge(resumed, None)
    assert budget.spent == {"cost": 7.0, "tokens": 0.0}
