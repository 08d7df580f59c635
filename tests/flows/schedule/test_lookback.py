"""Inputs that come late: what changes after the publish is run again by a later night."""

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.logging import disable_run_logger
from prefect.states import Scheduled

from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.lookback import changed_days
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state.manifest import digest
from overnight.tasks.state.run import write_json
from tests import jobs
from tests.flows.conftest import RunJob
from tests.flows.schedule.deployed import NIGHT, Deployed, start

DAYS = [(NIGHT - timedelta(days=number)).date().isoformat() for number in range(1, 5)]  # the newest first


def receipt(folder: Path, day: str) -> dict[str, Any]:
    return dict(json.loads((folder / f"out/_overnight/date={day}/receipt.json").read_text()))


def lookbacks(deployed: Deployed) -> list[FlowRun]:
    return [run for run in deployed.due() if "lookback" in run.tags]


@pytest.mark.slow
def test_a_day_whose_inputs_changed_since_is_run_again_once(
    client: SyncPrefectClient, run_job: RunJob, tmp_path: Path
) -> None:
    yesterday, changed, *_ = DAYS
    jobs.write_days(tmp_path, [yesterday, changed])
    run_job(jobs.job(tmp_path), changed)
    jobs.write_days(tmp_path, [changed], rows=5)
    deployed = Deployed(client, tmp_path, lookback_days=2)
    deployed.schedule(NIGHT)
    [nightly] = deployed.due()
    for _ in range(2):  # the second time, what it asks for is there, and its own partition is fresh
        start(client.read_flow_run(nightly.id))
        [again] = lookbacks(deployed)
        client.set_flow_run_state(nightly.id, Scheduled(), force=True)
    assert receipt(tmp_path, yesterday)["rows_in"] == 2
    assert again.parameters["partition"] == changed
    assert again.parameters["reason"] == f"inputs changed, seen by the run of {yesterday}"
    start(again)
    assert receipt(tmp_path, changed)["rows_in"] == 5
    assert len(lookbacks(deployed)) == 1  # a run that names its partition looks nowhere


@pytest.mark.parametrize("allow_empty", [True, False])
def test_of_the_days_before_those_are_run_again_whose_inputs_changed_and_are_there(
    allow_empty: bool, tmp_path: Path
) -> None:
    own, changed, gone, early = DAYS
    jobs.write_days(tmp_path, DAYS)
    source = jobs.job(tmp_path)["source"] | {"allow_empty": allow_empty}
    job = jobs.load(tmp_path, source=source)
    run = describe_run(job, own)
    made = {"fingerprint": run.fingerprint}
    for day in (changed, gone, early):
        inputs = digest(stream_inputs(job.source, day))
        write_json(replace(run, partition=day).ledger / "receipt.json", {"job": job.name, "inputs": inputs, **made})
    jobs.write_days(tmp_path, [own, changed, early], rows=3)
    shutil.rmtree(tmp_path / "in" / gone)
    with disable_run_logger():
        assert [changed_days(job, run, days) for days in (0, 2, 3)] == [[], [changed], [changed, early]]
        assert changed_days(jobs.load(tmp_path, name="other", source=source), run, 3) == []


def test_a_day_whose_late_inputs_were_published_and_undone_is_left_alone(tmp_path: Path) -> None:
    own, late, *_ = DAYS
    jobs.write_days(tmp_path, [own, late])
    job = jobs.load(tmp_path)
    run = describe_run(job, own)
    made = {"fingerprint": run.fingerprint, "inputs": digest(stream_inputs(job.source, late))}
    receipt = {"job": job.name, **made, "inputs": "before", "undo": {"undone": made}}
    write_json(replace(run, partition=late).ledger / "receipt.json", receipt)
    with disable_run_logger():
        assert changed_days(job, replace(run, fingerprint="of late rows"), 3) == []
        jobs.write_days(tmp_path, [late], rows=5)
        assert changed_days(job, run, 3) == [late]
