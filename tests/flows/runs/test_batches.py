"""A job whose requests go through a provider's batch API: whole runs, killed, cancelled, expired, and late."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.model import Job
from overnight.flows.runs.batches import end_at_budget
from overnight.tasks.errors import BudgetReached
from tests import jobs
from tests.flows.conftest import RunJob, assert_settled, parquet, published, quarantine, write_parquet
from tests.tasks.infer.batch_server import BatchServer, batch_server
from tests.tasks.runs import make_run

ROWS = 25
PRICES = {"price_per_million_input_tokens": 1.0, "price_per_million_output_tokens": 2.0}


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        server.seconds = 3.0
        yield server


def job_of(folder: Path, server: BatchServer, **batch: Any) -> dict[str, Any]:
    write_parquet(folder / "in/a.parquet", n=range(ROWS), text=[f"text {i}" for i in range(ROWS)])
    model = {"kind": "openai", "model": "m", "user": "{text}", "base_url": server.url, **PRICES}
    model["batch"] = {"rows": 10, "poll_seconds": 1, **batch}
    return jobs.job(folder, source=parquet(folder), inference=[model], checks={"max_quarantined": 0.2})


@pytest.mark.slow
def test_a_run_pays_half_and_leaves_to_the_stream_what_the_provider_refuses(
    tmp_path: Path, run_job: RunJob, server: BatchServer
) -> None:
    server.refused["text 17"] = (400, "this is too odd")
    server.broken.add("text 9")
    receipt = run_job(job_of(tmp_path, server, then="online"))
    assert_settled(receipt, written=ROWS - 1)
    [bad] = quarantine(tmp_path / "out", "all")
    assert bad["error_message"] == "expected an answer, found HTTP 400: this is too odd"
    table = published(receipt, tmp_path / "out").sort_by("n")
    assert table["generated_text"].to_pylist() == [f"text {i}"[::-1] for i in range(ROWS) if i != 17]
    # One row shows before the batches that requests succeed, and one was in no batch's answers.
    assert sorted(table["cost"].to_pylist()) == pytest.approx([6.5e-6] * 22 + [13e-6] * 2)
    assert server.online == {"text 0": 1, "text 17": 1, "text 9": 1}
    batches = receipt["batches"]
    assert (batches["requests"], batches["answered"], batches["charged"], batches["repeated"]) == (24, 22, 22, 0)
    assert sum(server.charged.values()) == 22
    assert not list((tmp_path / "out/_overnight").rglob("batches/*"))


@pytest.mark.slow
def test_a_batch_that_expired_with_a_third_done_is_finished_online_at_finish_by(
    tmp_path: Path, run_job: RunJob, server: BatchServer
) -> None:
    server.faults, server.day = {0: {"expired"}, 1: {"expired"}}, 4.0
    server.seconds, server.cancel_seconds = 1e6, 1.0  # the third one would take days
    soon = datetime.now(UTC) + timedelta(minutes=2)
    receipt = run_job(job_of(tmp_path, server, then="online", finish_by=f"{soon:%H:%M}"))
    assert_settled(receipt, written=ROWS)
    batches = receipt["batches"]
    assert [batch["state"] for batch in batches["batches"]] == ["expired", "expired", "cancelled"]
    assert batches["answered"] == sum(server.charged.values()) == 6
    assert sum(server.online.values()) == ROWS - 6
    assert [warning for warning in receipt["warnings"] if "finish_by" in warning]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["anthropic", "gemini"])
def test_batches_of_a_providers_own_api_keep_to_the_budget_and_serve_later_runs(
    tmp_path: Path, run_job: RunJob, dialect: str
) -> None:
    with batch_server(dialect) as server:
        server.seconds = 1.0
        job = job_of(tmp_path, server, dialect=dialect)
        job["inference"][0] |= {"dialect": dialect, "max_new_tokens": 20, "reuse": {"path": f"{tmp_path}/kept"}}
        # The first request costs 13e-6, and each in a batch half of it. Before 100 answers, a request counts 22e-6: so
        # the parts of ten and of four are sent, and the second one of ten is not.
        with pytest.raises(BudgetReached, match=r"budget\.cost: expected at most 0\.00029 .* found 0\.000104 spent"):
            run_job(job | {"budget": {"cost": 290e-6}})
        assert len(server.charged) == 14
        receipt = run_job(job | {"budget": {"cost": 1.0}})
        assert_settled(receipt, written=ROWS)
        assert receipt["spent"] == {"answers": ROWS, "tokens": ROWS * 10, "cost": pytest.approx(25 * 6.5e-6 + 6.5e-6)}
        table = published(receipt, tmp_path / "out").sort_by("n")
        assert table["generated_text"].to_pylist() == [f"text {i}"[::-1] for i in range(ROWS)]
        assert set(server.charged.values()) == {1}
        later = run_job(job, force=True)
    assert_settled(later, written=ROWS)
    assert later["reused"]["openai"]["answers"] == ROWS
    assert (sum(server.charged.values()), sum(server.online.values())) == (ROWS - 1, 1)


def test_only_the_first_model_may_have_batches(tmp_path: Path) -> None:
    mapping = jobs.job(tmp_path)
    first = {"kind": "openai", "name": "first", "model": "m", "user": "{text}"}
    second = first | {"name": "second", "batch": {}}
    with pytest.raises(ValueError, match="expected batch only in the first model, found it in second"):
        Job.model_validate({**mapping, "inference": [first, second]})


def test_batches_change_no_generation(tmp_path: Path) -> None:
    model = {"kind": "openai", "model": "m", "user": "{text}"}
    online = jobs.load(tmp_path, inference=[model])
    in_batches = jobs.load(tmp_path, inference=[model | {"batch": {"window": "24h"}}])
    assert online.result_settings() == in_batches.result_settings()


def test_the_wait_ends_with_the_minutes_of_the_budget(tmp_path: Path) -> None:
    began = f"{datetime.now(UTC) - timedelta(minutes=2):%Y-%m-%dT%H:%M:%SZ}"
    end_at_budget(make_run(tmp_path, started_at=began))
    end_at_budget(make_run(tmp_path, started_at=began, budget={"minutes": 3.0}))
    with pytest.raises(BudgetReached, match=r"budget\.minutes: expected a run of at most 1 minutes"):
        end_at_budget(make_run(tmp_path, started_at=began, budget={"minutes": 1.0}))
