"""A job that follows another: the publish of one starts the other by an automation of a real server."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun

from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.automations import apply_following
from overnight.flows.job.loading import load_job
from overnight.tasks.errors import InputError
from overnight.tasks.state.run import read_json
from tests import jobs
from tests.flows.conftest import RunJob
from tests.flows.schedule.deployed import start

FIRST, SECOND = "2026-03-01", "2026-03-02"
ANSWERS_WITHIN = 60.0  # seconds until the server has created a run


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    jobs.write_days(tmp_path / "orders", [FIRST, SECOND])
    return jobs.write_job(tmp_path / "orders/job.yaml", name="orders")


@pytest.fixture
def deployed(client: SyncPrefectClient, tmp_path: Path, orders: Path) -> Iterator[Callable[..., UUID]]:
    """Deploys the job `totals`, which follows the orders."""

    def deploy(**after: str) -> UUID:
        jobs.write_days(tmp_path / "totals", [FIRST, SECOND])
        path = jobs.write_job(tmp_path / "totals/job.yaml", name="totals", run_after={"job": str(orders), **after})
        flow = client.create_flow(batch_inference)
        deployment = client.create_deployment(flow, tmp_path.name, parameters={"job": str(path)})
        assert set(apply_following(client, load_job(path), deployment).values()) == {"created"}
        assert set(apply_following(client, load_job(path), deployment).values()) == {"unchanged"}
        return deployment

    yield deploy
    for automation in client.read_automations_by_name("overnight-totals-after-orders"):
        client.delete_automation(automation.id)


def runs_of(client: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment]))
    )


def next_run(client: SyncPrefectClient, deployment: UUID, known: int) -> FlowRun:
    """The run that the server creates after `known` others."""
    end = time.monotonic() + ANSWERS_WITHIN
    while len(runs := runs_of(client, deployment)) <= known:
        assert time.monotonic() < end, "the automation started no run"
        time.sleep(0.5)
    return max(runs, key=lambda run: str(run.created))


@pytest.mark.slow
def test_each_publish_starts_the_job_that_follows_and_a_later_one_makes_it_run_again(
    client: SyncPrefectClient, run_job: RunJob, tmp_path: Path, orders: Path, deployed: Callable[..., UUID]
) -> None:
    deployment = deployed()
    receipt = run_job(orders, FIRST)
    following = next_run(client, deployment, 0)
    assert following.parameters["partition"] == FIRST
    assert following.parameters["reason"] == f"after orders/{FIRST}"
    assert start(following).is_completed()
    record = read_json(load_job(tmp_path / "totals/job.yaml").ledger(FIRST) / "receipt.json") or {}
    assert record["after"] == {"orders": {FIRST: receipt["generation"]}}

    again = run_job(orders, FIRST, force=True)
    assert start(next_run(client, deployment, 1)).is_completed()
    newest = read_json(load_job(tmp_path / "totals/job.yaml").ledger(FIRST) / "receipt.json") or {}
    assert newest["generation"] != record["generation"]
    assert newest["after"] == {"orders": {FIRST: again["generation"]}}


@pytest.mark.slow
def test_a_run_waits_for_the_other_days_that_it_needs_and_their_publish_starts_it_again(
    client: SyncPrefectClient, run_job: RunJob, tmp_path: Path, orders: Path, deployed: Callable[..., UUID]
) -> None:
    deployment = deployed(partition="last 2")
    (tmp_path / f"orders/out/_overnight/date={FIRST}").mkdir(parents=True)
    run_job(orders, SECOND)
    state = start(next_run(client, deployment, 0))
    assert (state.name, state.is_completed()) == ("Waiting", True)
    assert state.message == (
        f"waits: expected the partition {FIRST} of the job orders, found it not published. Its publish starts this job "
        "again."
    )
    with pytest.raises(InputError, match=f"run_after: expected the partition {FIRST} of the job orders"):
        run_job(tmp_path / "totals/job.yaml", SECOND)


@pytest.mark.slow
def test_the_publish_of_an_earlier_day_runs_the_later_days_that_need_it(
    client: SyncPrefectClient, run_job: RunJob, tmp_path: Path, orders: Path, deployed: Callable[..., UUID]
) -> None:
    deployment = deployed(partition="last 2")
    jobs.write_days(tmp_path / "orders", ["2026-02-28"])
    for day in ("2026-02-28", FIRST, SECOND):
        run_job(orders, day)
    for day in (FIRST, SECOND):
        run_job(tmp_path / "totals/job.yaml", day)
    count = len(runs_of(client, deployment))
    run_job(orders, FIRST, force=True)
    following = next_run(client, deployment, max(count, 3))
    assert following.parameters["partition"] == FIRST
    assert start(following).is_completed()
    later = next_run(client, deployment, max(count, 3) + 1)
    assert later.parameters["partition"] == SECOND
    assert later.parameters["reason"] == f"follows orders, which was published again since: {FIRST}"
