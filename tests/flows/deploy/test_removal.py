"""What `overnight remove` takes off a server, and what it names as staying."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from prefect.client.orchestration import get_client

from overnight.cli.main import main
from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.apply import _deployments
from overnight.flows.deploy.automations import apply_automations
from overnight.flows.deploy.removal import files_of
from overnight.flows.job.loading import load_job
from tests import jobs
from tests.prefect_api import ask

WHEN = {"cron": "0 2 * * *", "timezone": "UTC", "deadline": "06:30"}


@pytest.fixture
def job(prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a job that is on the server, beside another job, with an automation of its own."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    for name in ("goes", "stays"):
        file = jobs.write_job(tmp_path / f"{name}.yaml", jobs.job(tmp_path / name, name=name, schedule=WHEN))
        for deployment in _deployments(load_job(file), file):
            deployment.apply()
    apply_automations()
    ids = {name: ask(prefect_api, f"/deployments/name/batch-inference/{name}")["id"] for name in ("goes", "stays")}
    for name, of in {"only": ["goes"], "both": ["goes", "stays"]}.items():
        ask(prefect_api, "/automations/", _automation(name, [ids[each] for each in of]))
    yield tmp_path / "goes.yaml"
    for kind in ("deployments", "automations"):
        for thing in ask(prefect_api, f"/{kind}/filter", {}):
            ask(prefect_api, f"/{kind}/{thing['id']}", method="DELETE")


def _automation(name: str, deployments: list[str]) -> dict[str, Any]:
    related = {"prefect.resource.id": [f"prefect.deployment.{each}" for each in deployments[:1]]}
    trigger = {"type": "event", "posture": "Reactive", "expect": ["prefect.flow-run.Failed"], "match_related": related}
    trigger |= {"threshold": 1, "within": 0}
    after = [{"type": "run-deployment", "source": "selected", "deployment_id": each} for each in deployments[1:]]
    return {"name": name, "trigger": trigger, "actions": [{"type": "do-nothing"}], "actions_on_trigger": after}


def remove(job: Path, *options: str) -> dict[str, Any]:
    result: Result = CliRunner().invoke(main, ["remove", str(job), "--json", *options])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def named(items: list[dict[str, str]]) -> set[str]:
    return {f"{item['kind']} {item['name']}" for item in items}


def on_server(api: str, kind: str) -> set[str]:
    return {thing["name"] for thing in ask(api, f"/{kind}/filter", {})}


def test_a_job_is_removed_with_its_schedules_and_automations_only_with_yes_and_its_files_stay(
    job: Path, prefect_api: str
) -> None:
    (job.parent / "goes/out").mkdir(parents=True, exist_ok=True)
    flows = ("backfill", "batch-inference", "freshness")
    own = {f"deployment {flow}/goes" for flow in flows} | {"automation only"}
    own |= {f"schedule {flow}/goes" for flow in ("batch-inference", "freshness")}
    with get_client(sync_client=True) as client:
        client.create_flow_run_from_deployment(client.read_deployment_by_name("batch-inference/goes").id, name="waits")

    plan = remove(job)
    assert named(plan["removable"]) == own
    assert "goes" in on_server(prefect_api, "deployments")
    assert "only" in on_server(prefect_api, "automations")

    report = remove(job, "--yes")
    assert named(report["removed"]) == own
    left = on_server(prefect_api, "deployments")  # other tests have theirs there
    assert "stays" in left
    assert "goes" not in left
    assert on_server(prefect_api, "automations") >= {"both", "overnight-crashed-run-starts-again"}
    assert "only" not in on_server(prefect_api, "automations")
    waiting = {"flow_runs": {"name": {"any_": ["waits"]}}}
    assert ask(prefect_api, "/flow_runs/filter", waiting) == []

    stays = {item["kind"]: item for item in report["stays"]}
    sink = load_job(job).sink.place
    assert stays["published rows"]["remark"].endswith(f": rm -r {sink}")
    assert stays["state"]["name"] == f"{sink}/_overnight"
    assert job.exists()
    assert "automation both" in named(report["stays"])

    again = CliRunner().invoke(main, ["remove", str(job)])
    assert again.exit_code == 0
    assert "goes: 0 objects of the server would be removed" in again.stdout


def test_a_run_under_way_is_named_because_it_goes_on(job: Path, prefect_api: str) -> None:
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(f"{batch_inference.name}/goes")
        run = client.create_flow_run_from_deployment(deployment.id, name="goes/2026-11-25")
        for state in ("PENDING", "RUNNING"):
            ask(prefect_api, f"/flow_runs/{run.id}/set_state", {"state": {"type": state}, "force": True})
    assert "run goes/2026-11-25" in named(remove(job)["stays"])


def test_a_job_file_that_is_wrong_is_bad_usage(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["remove", str(tmp_path / "none.yaml")]).exit_code == 2


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("file:///data/my rows", "rm -r '/data/my rows'"),
        ("${OUT_ROOT}/rows", "aws s3 rm --recursive s3://bucket/rows"),
        ("abfs://container/rows", "use a tool of its store"),
    ],
)
def test_the_command_that_deletes_rows_fits_their_store(
    path: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT_ROOT", "s3://bucket")
    sink = {"kind": "parquet", "path": path}
    file = jobs.write_job(tmp_path / "job.yaml", jobs.job(tmp_path, sink=sink, state=str(tmp_path / "state")))
    rows, *_ = files_of(load_job(file), file)
    assert rows.remark == f"to delete them, unless other jobs publish there: {command}"
