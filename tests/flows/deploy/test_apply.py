"""What `overnight deploy` makes of a server, and what of the server's it leaves alone."""

import functools
import json
import operator
import re
import urllib.error
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from click.testing import CliRunner
from prefect.events.schemas.automations import EventTrigger
from prefect.server.events.schemas.automations import EventTrigger as ServersTrigger
from prefect.server.events.schemas.events import ReceivedEvent

from overnight.cli.main import main
from overnight.flows.deploy.apply import _deployments
from overnight.flows.deploy.apply import deploy as deploy_here
from overnight.flows.deploy.automations import HEARTBEAT_SECONDS, apply_automations, read_automations
from overnight.flows.deploy.deployments import UndeployedJob, at_deadline
from overnight.flows.deploy.prefect_yaml import PrefectFile
from overnight.flows.job.loading import load_job
from overnight.tasks.errors import JobError
from tests import jobs
from tests.prefect_api import ask

Deploy = Callable[..., list[dict[str, Any]]]
PROJECT = Path(__file__).parents[3]
JOB = jobs.job(Path("/x"), schedule={"cron": "0 2 * * *", "timezone": "Europe/Berlin", "deadline": "06:30"})
POOL = "/work_pools/overnight"
RUN_AGAIN, CONTAINER_AGAIN = "overnight-crashed-run-starts-again", "overnight-crashed-container-starts-again"
OTHER_AUTOMATIONS = ("overnight-run-that-never-began-starts-again", "overnight-silent-run-has-crashed")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's folder with the shipped prefect.yaml, cut down to one job."""
    jobs.write_job(tmp_path / "deployments/job.yaml", JOB)
    shipped = yaml.safe_load((PROJECT / "deployments/prefect.yaml").read_text())
    entry = next(entry for entry in shipped["deployments"] if entry["schedules"])
    entry |= {"name": "small", "parameters": {"job": "deployments/job.yaml"}}
    entry["schedules"] = [{"cron": "0 2 * * *", "timezone": "Europe/Berlin", "slug": "daily"}]
    write(tmp_path, shipped | {"deployments": [entry]})
    return tmp_path


def read(project: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((project / "deployments/prefect.yaml").read_text()))


def write(project: Path, content: dict[str, Any]) -> None:
    (project / "deployments/prefect.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture
def deploy(prefect_api: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Deploys the project, as JSON values; all that it can make is gone from the server afterwards."""
    monkeypatch.chdir(project)
    remove_all(prefect_api)
    yield lambda: json.loads(json.dumps([change.as_json() for change in deploy_here()]))
    remove_all(prefect_api)


def remove_all(api: str) -> None:
    limits = [found["name"] for found in ask(api, "/v2/concurrency_limits/filter", {})]
    for path in [
        *(f"/deployments/{found['id']}" for found in ask(api, "/deployments/filter", {})),
        *(f"/automations/{found['id']}" for found in ask(api, "/automations/filter", {})),
        *(f"/v2/concurrency_limits/{name}" for name in limits if name.startswith("overnight")),
        *([POOL] if ask(api, "/work_pools/filter", {"work_pools": {"name": {"any_": ["overnight"]}}}) else []),
    ]:
        ask(api, path, method="DELETE")


def done(changes: list[dict[str, Any]]) -> dict[str, str]:
    return {f"{change['kind']} {change['name']}": change["done"] for change in changes}


def fields(changes: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [change] = [change for change in changes if change["name"] == name]
    return dict(change["fields"])


@pytest.mark.slow
def test_a_first_deploy_makes_everything_a_second_changes_nothing_and_a_third_sets_back_what_nobody_paused_or_made(
    deploy: Deploy, prefect_api: str
) -> None:
    first = done(deploy())
    assert set(first.values()) == {"created"}
    assert set(first) == {
        "work pool overnight",
        *(f"work queue overnight/{name}" for name in ("daily", "default", "backfill")),
        "concurrency limit overnight-gpu",
        "deployment batch-inference/small",
        *(f"automation {name}" for name in (CONTAINER_AGAIN, RUN_AGAIN, *OTHER_AUTOMATIONS)),
    }
    queues = {queue["name"]: queue for queue in ask(prefect_api, f"{POOL}/queues/filter", {})}
    assert {name: queue["priority"] for name, queue in queues.items()} == {"daily": 1, "default": 10, "backfill": 20}
    small = ask(prefect_api, "/deployments/name/batch-inference/small")
    assert (small["work_pool_name"], small["work_queue_name"]) == ("overnight", "daily")
    assert small["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    assert small["global_concurrency_limit"]["limit"] >= 1
    assert starts(prefect_api, small["id"], {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "31"}})
    preload = {"LD_PRELOAD": "x"}
    for refused in ({"command": "env"}, {"env": preload}, {"env.LD_PRELOAD": "x"}, {"working_dir": "/"}):
        assert not starts(prefect_api, small["id"], refused), refused
    assert done(deploy()) == dict.fromkeys(first, "unchanged")

    automation = ask(prefect_api, "/automations/filter", {})[0]
    ask(prefect_api, f"/work_queues/{queues['daily']['id']}", {"priority": 7, "is_paused": True}, "PATCH")
    of_prefect = {
        "job_configuration": {"command": "{{ command }}"},
        "variables": {"properties": {"command": {"type": "string"}}},
    }
    pool = {"concurrency_limit": 3, "is_paused": True, "base_job_template": of_prefect}
    ask(prefect_api, POOL, pool, "PATCH")
    ask(prefect_api, "/v2/concurrency_limits/overnight-gpu", {"limit": 99}, "PATCH")
    ask(prefect_api, "/v2/concurrency_limits/", {"name": "overnight-licences", "limit": 4}, "POST")
    ask(prefect_api, f"/automations/{automation['id']}", {"enabled": False}, "PATCH")
    ask(prefect_api, f"/deployments/{small['id']}", {"paused": True}, "PATCH")
    schedules = f"/deployments/{small['id']}/schedules"
    ask(prefect_api, f"{schedules}/{small['schedules'][0]['id']}", {"active": False}, "PATCH")
    ask(prefect_api, schedules, [{"schedule": {"cron": "5 5 * * 1", "timezone": "UTC"}, "active": True}], "POST")
    changed = deploy()
    assert fields(changed, "overnight/daily") == {"priority": {"old": 7, "new": 1}}
    assert fields(changed, "overnight") == {"concurrency_limit": {"old": 3, "new": 8}, "base_job_template": {}}
    assert fields(changed, "overnight-gpu") == {"limit": {"old": 99, "new": 1}}
    assert fields(changed, "batch-inference/small") == {}
    told = done(changed)
    assert told["concurrency limit overnight-licences"] == "left alone"
    assert told[f"automation {automation['name']}"] == "unchanged"
    assert not starts(prefect_api, small["id"], {"command": "env"})
    assert ask(prefect_api, POOL)["is_paused"]
    assert ask(prefect_api, f"/work_queues/{queues['daily']['id']}")["is_paused"]
    assert not ask(prefect_api, f"/automations/{automation['id']}")["enabled"]
    small = ask(prefect_api, "/deployments/name/batch-inference/small")
    assert small["paused"]
    found = {(one["schedule"]["cron"], one["active"]) for one in small["schedules"]}
    assert found == {("0 2 * * *", False), ("5 5 * * 1", True)}


def starts(api: str, deployment: str, variables: dict[str, Any]) -> bool:
    """Request a run with these job variables, and return False if the server refuses it."""
    try:
        run = ask(api, f"/deployments/{deployment}/create_flow_run", {"job_variables": variables})
    except urllib.error.HTTPError as error:
        if error.code != 422:
            raise
        return False
    ask(api, f"/flow_runs/{run['id']}", method="DELETE")
    return True


def test_no_setting_lets_backfills_starve_their_children_or_the_daily_runs() -> None:
    file = PrefectFile(PROJECT / "deployments/prefect.yaml")
    [pool] = file.work_pools
    limits = {queue.name: queue.concurrency_limit for queue in pool.work_queues}
    assert limits["default"] + limits["backfill"] < pool.concurrency_limit  # type: ignore[operator]
    priorities = {queue.name: queue.priority for queue in pool.work_queues}
    assert priorities["daily"] < min(priorities["default"], priorities["backfill"])
    for name, entry in file.deployments.items():
        if name.startswith("batch-inference/"):
            assert entry["work_pool"]["work_queue_name"] == "daily"
            assert entry["concurrency_limit"]["limit"] > limits["backfill"]  # type: ignore[operator]


@pytest.mark.slow
def test_what_changes_in_the_files_is_told_field_by_field_and_what_they_no_longer_name_is_left_alone(
    deploy: Deploy, prefect_api: str, project: Path
) -> None:
    deploy()
    content = read(project)
    jobs.write_job(project / "deployments/other.yaml", name="other")
    [entry] = content["deployments"]
    other = entry | {"name": "other", "parameters": {"job": "deployments/other.yaml"}, "schedules": []}
    write(project, content | {"deployments": [entry | {"tags": ["more", "overnight"]}, other]})
    changed = deploy()
    assert fields(changed, "batch-inference/small") == {
        "tags": {"old": sorted(entry["tags"]), "new": ["more", "overnight"]}
    }
    assert done(changed)["deployment batch-inference/other"] == "created"
    jobs.write_job(project / "deployments/job.yaml")
    write(project, content | {"deployments": [entry | {"schedules": []}]})
    changed = deploy()
    assert done(changed)["deployment batch-inference/other"] == "left alone"
    assert fields(changed, "batch-inference/small")["schedules"] == {
        "old": ["daily: 0 2 * * * Europe/Berlin"],
        "new": [],
    }
    assert ask(prefect_api, "/deployments/name/batch-inference/small")["schedules"] == []


@pytest.mark.slow
def test_a_person_reads_one_line_a_thing_why_the_next_run_would_not_start_and_of_prefect_deploy_only_its_failure(
    deploy: Deploy, prefect_api: str, project: Path
) -> None:
    ask(prefect_api, "/v2/concurrency_limits/", {"name": "overnight-gpu", "limit": 99}, "POST")
    said = CliRunner().invoke(main, ["deploy"])
    assert said.exit_code == 0, said.output
    assert "concurrency limit overnight-gpu: changed (limit: 99 -> 1)" in said.stdout.splitlines()
    assert all(line.split(": ")[1].split(" ")[0] in ("changed", "created") for line in said.stdout.splitlines())
    told = r"the next run of small \(20.* 02:00 .*\) would not start: no worker polls work pool overnight -> Start one"
    assert re.search(told, said.stderr)
    content = read(project)
    content["deployments"][0]["parameters"]["limit_rows"] = -1
    write(project, content)
    said = CliRunner().invoke(main, ["deploy", "--json"])
    assert (said.exit_code, said.stdout) == (1, "")
    assert "`prefect deploy` failed with exit status 1" in said.stderr
    assert "-1 is less than the minimum of 0" in said.stderr


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (("deployments", 0, "schedules", 0), {"cron": "0 3 * * *"}, "Write the same in both files"),
        (("deployments", 0, "work_pool"), {"work_queue_name": "dialy"}, "queue dialy of pool overnight"),
        (
            ("deployments", 0, "work_pool"),
            {"job_variables": {"env": {"RAY_ADDRESS": "ray://head:10001"}}},
            "RAY_ADDRESS of small: .* found ray://head:10001",
        ),
        (("definitions", "work_pools", 0, "work_queues", 0), {"priority": 0}, "greater than or equal"),
        (("definitions", "concurrency_limits", 0), {"limitt": 1}, "limitt"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_before_anything_is_applied(
    project: Path, place: tuple[str | int, ...], change: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = read(project)
    functools.reduce(operator.getitem, place, content).update(change)
    write(project, content)
    monkeypatch.chdir(project)
    with pytest.raises(JobError, match=message):
        PrefectFile()


def test_serve_makes_the_same_deployments_as_the_file(project: Path) -> None:
    job = load_job(project / "deployments/job.yaml")
    served = _deployments(job, project / "deployments/job.yaml")
    found = {one.flow_name: [schedule.schedule for schedule in one.schedules or []] for one in served}
    assert {one.name for one in served} == {"small"}
    assert found.keys() == {"batch-inference", "backfill", "freshness"}
    assert [(each.cron, each.timezone) for each in found["freshness"]] == [("30 6 * * *", "Europe/Berlin")]  # type: ignore[union-attr]
    assert [each.cron for each in found["batch-inference"]] == ["0 2 * * *"]  # type: ignore[union-attr]
    assert found["backfill"] == []
    with pytest.raises(UndeployedJob):
        at_deadline(job.model_copy(update={"schedule": None}))


def test_jobs_without_a_file_get_the_schedules_of_their_job_files_in_the_queues_that_ship(project: Path) -> None:
    plain = jobs.write_job(project / "plain.yaml", name="plain", source={"kind": "csv", "path": "/in"})
    file = PrefectFile(job_paths=[project / "deployments/job.yaml", plain])
    found = {
        name: (entry["work_pool"]["work_queue_name"], [schedule["cron"] for schedule in entry["schedules"]])
        for name, entry in file.deployments.items()
    }
    assert found == {
        "batch-inference/small": ("daily", ["0 2 * * *"]),
        "backfill/small": ("default", []),
        "freshness/small": ("daily", ["30 6 * * *"]),
        "batch-inference/plain": ("daily", []),
    }
    shipped = PrefectFile(PROJECT / "deployments/prefect.yaml")
    assert (file.work_pools, file.concurrency_limits) == (shipped.work_pools, shipped.concurrency_limits)
    heartbeats = file.deployments["batch-inference/small"]["work_pool"]["job_variables"]
    assert heartbeats == {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": HEARTBEAT_SECONDS}}


def test_a_job_without_a_file_that_means_another_place_elsewhere_is_refused_and_so_is_no_job(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.write_job(project / "deployments/job.yaml", JOB | {"sink": {"kind": "parquet", "path": "out"}})
    with pytest.raises(JobError, match=r"sink\.path: out"):
        PrefectFile(job_paths=[job])
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(JobError, match=r"overnight deploy JOB\.yaml$"):
        PrefectFile()


@pytest.mark.slow
def test_jobs_without_a_file_are_deployed_and_the_sizes_on_the_server_are_kept(
    prefect_api: str, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [project / "deployments/job.yaml"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    remove_all(prefect_api)
    try:
        first = {f"{change.kind} {change.name}": change.done for change in deploy_here(job_paths=paths)}
        assert first == dict.fromkeys(first, "created")
        assert {f"deployment {flow}/small" for flow in ("batch-inference", "backfill", "freshness")} <= set(first)
        found = ask(prefect_api, "/deployments/name/batch-inference/small")
        assert found["parameters"]["job"] == str(paths[0])
        assert found["pull_steps"] == [
            {"prefect.deployments.steps.set_working_directory": {"directory": str(elsewhere)}}
        ]
        queues = {queue["name"]: queue["id"] for queue in ask(prefect_api, f"{POOL}/queues/filter", {})}
        ask(prefect_api, POOL, {"concurrency_limit": 3}, "PATCH")
        ask(prefect_api, f"/work_queues/{queues['backfill']}", {"concurrency_limit": 1}, "PATCH")
        ask(prefect_api, "/v2/concurrency_limits/overnight-gpu", {"limit": 7}, "PATCH")
        again = {f"{change.kind} {change.name}": change.done for change in deploy_here(job_paths=paths)}
        assert again == dict.fromkeys(first, "unchanged")
    finally:
        remove_all(prefect_api)


BAD_FORMS: list[dict[str, Any]] = [
    *({"partition": day} for day in ("yesterday", "2026-1-2", "2026-13-40", "2026-02-30")),
    *({"limit_rows": -1}, {"limit_rows": "many"}, {"job": "deployments/another.yaml"}, {"force": "perhaps"}),
    *({"settings": ["shuffle.seed"]}, {"settings": "shuffle.seed=1"}),
    *(
        {"settings": [setting]}
        for setting in ("inference.0.kwargs.api_key=canary", "source.path=s3://id:canary@bucket")
    ),
    {"reason": "see https://host/ticket?token=canary"},
]


@pytest.mark.slow
def test_the_server_refuses_a_bad_form_before_there_is_a_run_and_takes_a_good_one(
    deployed: str, prefect_api: str
) -> None:
    mine = {"deployments": {"id": {"any_": [deployed]}}}
    for bad in BAD_FORMS:
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(prefect_api, f"/deployments/{deployed}/create_flow_run", {"parameters": bad})
        assert caught.value.code in (409, 422), bad
    runs = ask(prefect_api, "/flow_runs/filter", mine)
    assert [run["parameters"] for run in runs if "auto-scheduled" not in run["tags"]] == []
    whole = {"partition": "2026-01-02", "force": True, "reason": "why", "limit_rows": 5, "settings": ["shuffle.seed=1"]}
    for good in ({}, {"partition": "all"}, whole):
        run = ask(prefect_api, f"/deployments/{deployed}/create_flow_run", {"parameters": good})
        assert {name: run["parameters"][name] for name in good} == good
        ask(prefect_api, f"/flow_runs/{run['id']}", method="DELETE")


def test_the_form_refuses_a_day_that_does_not_exist_and_takes_none_and_all(deployed: str, prefect_api: str) -> None:
    schema = ask(prefect_api, f"/deployments/{deployed}")["parameter_openapi_schema"]
    own = schema["properties"]["job"]["enum"]

    def is_valid(day: str) -> bool:
        values = {"partition": day, "job": own[0]}
        return bool(ask(prefect_api, "/ui/schemas/validate", {"schema": schema, "values": values})["valid"])

    assert len(own) == 1
    days = ["", "all", "2026-11-24", "2026-13-40", "2026-02-29", "any"]
    assert [day for day in days if is_valid(day)] == [*days[:3]]


@pytest.fixture(scope="module")
def deployed(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a deployment as `serve` makes it."""
    path = jobs.write_job(tmp_path_factory.mktemp("deployed") / "job.yaml", JOB | {"name": "formed"})
    deployment, *_ = _deployments(load_job(path), path)
    return str(deployment.apply())


def test_automations_that_are_not_there_are_missed(prefect_api: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=f"{tmp_path}/automations"):
        apply_automations(tmp_path / "automations")


def test_only_automations_that_keep_no_notes_read_of_a_crash() -> None:
    """What fails in one automation, on a busy SQLite, takes the event from the others. Notes are what fails."""
    assert set(reading_of_a_crash()) == {RUN_AGAIN, CONTAINER_AGAIN}
    assert {(each.threshold, each.within) for each in reading_of_a_crash().values()} == {(1, timedelta(0))}


@pytest.mark.parametrize(
    ("pool", "message", "starts"),
    [
        ("process", "Process exited with status code: -9.", [RUN_AGAIN]),
        ("process", "Flow run infrastructure exited with non-zero status code -9.", []),
        ("process", "No heartbeat of the flow's process for two minutes.", [RUN_AGAIN]),
        ("docker", "Flow run infrastructure exited with non-zero status code 137.", [CONTAINER_AGAIN]),
        ("kubernetes", "No heartbeat of the flow's process for two minutes.", [RUN_AGAIN]),
        ("", "Process exited with status code: -9.", [RUN_AGAIN]),
    ],
)
def test_a_death_starts_a_run_again_once_though_a_worker_of_processes_tells_it_twice(
    pool: str, message: str, starts: list[str]
) -> None:
    related = [("flow", {}), ("deployment", {}), *([("work-pool", {"prefect.work-pool.type": pool})] if pool else [])]
    crash = ReceivedEvent(
        occurred=datetime.now(UTC),
        event="prefect.flow-run.Crashed",
        id=uuid4(),
        resource={
            "prefect.resource.id": f"prefect.flow-run.{uuid4()}",
            "prefect.run-count": "1",
            "prefect.state-message": message,
        },
        related=[
            {"prefect.resource.id": role, "prefect.resource.role": role, "prefect.resource.name": "backfill", **labels}
            for role, labels in related
        ],
    )
    triggers = {name: trigger.model_dump(mode="json") for name, trigger in reading_of_a_crash().items()}
    covering = [name for name, trigger in triggers.items() if ServersTrigger.model_validate(trigger).covers(crash)]
    assert covering == starts


def reading_of_a_crash() -> dict[str, EventTrigger]:
    found = {}
    for automation in read_automations():
        assert isinstance(automation.trigger, EventTrigger)
        if "prefect.flow-run.Crashed" in automation.trigger.expect | automation.trigger.after:
            found[automation.name] = automation.trigger
    return found
