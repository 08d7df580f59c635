"""`overnight doctor` on a real server, one that is stopped, buckets that refuse, and a Ray that is not there."""

import json
import os
import re
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from overnight.flows.deploy.apply import deploy
from overnight.flows.doctor.environment import check_environment, check_storage, check_versions
from overnight.flows.doctor.examine import Check, Finding, run_checks
from overnight.flows.doctor.job_file import check_libraries, check_models
from overnight.flows.doctor.next_runs import start_worker
from overnight.flows.doctor.prefect_server import check_prefect
from overnight.flows.doctor.ray_cluster import check_ray, judge, judge_plan
from overnight.flows.job.loading import load_job
from overnight.flows.ledger.late_runs import with_late_runs
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.storage.s3 import PatientS3
from tests import jobs
from tests.flows.conftest import Overnight
from tests.flows.deploy.test_apply import POOL, project, remove_all
from tests.flows.scrape import scraped
from tests.metric_names import metric_names
from tests.prefect_api import ask
from tests.tasks.faulty_s3 import FaultyS3, faulty_s3

__all__ = ["project"]  # a fixture here as well

Levels = dict[str, str]


def levels(findings: list[Finding]) -> Levels:
    """The worst that was found of each thing."""
    order = ("ok", "warning", "wrong")
    worst: Levels = {}
    for finding in findings:
        worst[finding.what] = max(worst.get(finding.what, "ok"), finding.level, key=order.index)
    return worst


def of(findings: list[Finding], what: str) -> str:
    return "\n".join(f"{finding.found} -> {finding.advice}" for finding in findings if finding.what == what)


@pytest.fixture
def deployed(prefect_api: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that was deployed to the session's server; what that made is gone afterwards."""
    monkeypatch.chdir(project)
    remove_all(prefect_api)
    deploy()
    yield project
    remove_all(prefect_api)


@pytest.fixture
def bucket(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, FaultyS3]]:
    """A bucket with one input, and the way to it, which fails as the test says."""
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="in/date=2026-01-02/a.parquet", Body=b"x")
    with faulty_s3(os.environ["AWS_ENDPOINT_URL"]) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.url)
        monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "2")
        PatientS3.clear_instance_cache()
        yield name, way
    PatientS3.clear_instance_cache()


def write_job(folder: Path, source: str | list[str], sink: str, **more: Any) -> Path:
    source_and_sink = {"source": {"kind": "parquet", "path": source}, "sink": {"kind": "parquet", "path": sink}}
    return jobs.write_job(folder / "checked.yaml", jobs.job(folder, **source_and_sink, **more))


@pytest.mark.slow
def test_a_server_is_well_once_it_is_deployed_to_and_has_a_worker_and_the_schedule_of_the_job(
    deployed: Path, prefect_api: str
) -> None:
    found = list(check_prefect(None))
    well = ("server", "database", "work pool overnight", "concurrency limits", "deployments", "automations")
    assert levels(found) == dict.fromkeys((*well, "late runs"), "ok") | {"worker": "wrong", "next run": "wrong"}
    start = f"PREFECT_API_URL={prefect_api} prefect worker start --pool overnight --type process"
    assert start in of(found, "worker")
    assert re.search(
        r"the next run of small \(20..-..-.. 02:00 Europe/Berlin\) would not start: no worker polls work pool "
        f"overnight -> Start one: `{start}`",
        of(found, "next run"),
    )
    assert scraped().value("overnight_workers_online", work_pool="overnight") == 0
    ask(prefect_api, f"{POOL}/workers/heartbeat", {"name": "nightly", "heartbeat_interval_seconds": 30})
    found = list(check_prefect(None))
    assert set(levels(found).values()) == {"ok"}
    assert "nightly" in of(found, "worker")
    metrics = scraped()
    assert metrics.names == metric_names()
    assert metrics.value("overnight_workers_online", work_pool="overnight") == 1
    assert metrics.value("overnight_job_readable", file="deployments/job.yaml") == 1
    small = ask(prefect_api, "/deployments/name/batch-inference/small")
    ask(prefect_api, f"/deployments/{small['id']}/schedules/{small['schedules'][0]['id']}", method="DELETE")
    path = deployed / "deployments/job.yaml"
    found = list(check_prefect(load_job(path), path))
    assert "would not start: the server has another schedule, none -> Run `overnight deploy" in of(found, "next run")


def test_what_is_paused_missing_or_late_on_the_server_is_told(deployed: Path, prefect_api: str) -> None:
    queues = {queue["name"]: queue["id"] for queue in ask(prefect_api, f"{POOL}/queues/filter", {})}
    ask(prefect_api, f"/work_queues/{queues['daily']}", {"is_paused": True}, "PATCH")
    ask(prefect_api, f"/work_queues/{queues['backfill']}", {"priority": 30}, "PATCH")
    automation = ask(prefect_api, "/automations/filter", {})[0]["id"]
    ask(prefect_api, f"/automations/{automation}", method="DELETE")
    small = ask(prefect_api, "/deployments/name/batch-inference/small")
    ask(prefect_api, f"/deployments/{small['id']}", {"paused": True}, "PATCH")
    run = ask(prefect_api, f"/deployments/{small['id']}/create_flow_run", {})["id"]
    late = {"type": "SCHEDULED", "name": "Late", "state_details": {"scheduled_time": "2026-01-02T02:00:00Z"}}
    ask(prefect_api, f"/flow_runs/{run}/set_state", {"state": late, "force": True})
    found = list(check_prefect(None))
    well = {what for what, level in levels(found).items() if level == "ok"}
    assert well == {"server", "database", "concurrency limits"}
    assert "queue backfill -> Run `overnight deploy`." in of(found, "work pool overnight")
    assert "paused queues: daily" in of(found, "work pool overnight")
    assert "not on the server: overnight-" in of(found, "automations")
    assert "paused: batch-inference/small" in of(found, "deployments")
    assert "would not start: its deployment is paused" in of(found, "next run")
    ask(prefect_api, f"/deployments/{small['id']}", {"paused": False}, "PATCH")
    schedule = f"/deployments/{small['id']}/schedules/{small['schedules'][0]['id']}"
    ask(prefect_api, schedule, {"active": False}, "PATCH")
    assert "would not start: its schedule is paused" in of(list(check_prefect(None)), "next run")
    assert "1 runs should have started" in of(found, "late runs")
    assert "(Late)" in of(found, "late runs")
    metrics = scraped()
    assert metrics.value("overnight_runs_late", work_queue="daily") == 1
    assert metrics.value("overnight_runs_late", work_queue="backfill") == 0
    ask(prefect_api, f"/flow_runs/{run}", method="DELETE")


def test_a_server_that_nothing_was_deployed_to_is_told_what_is_missing(
    prefect_api: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    remove_all(prefect_api)
    found = list(check_prefect(None))
    wrong = {what for what, level in levels(found).items() if level == "wrong"}
    assert wrong == {"work pool overnight", "concurrency limits", "deployments", "automations"}
    assert all("overnight deploy" in of(found, what) for what in wrong)


@pytest.mark.slow
def test_a_run_that_a_worker_took_and_did_not_start_is_late_also_for_a_command_elsewhere(
    deployed: Path, prefect_api: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ask(prefect_api, "/deployments/name/batch-inference/small")
    run = ask(prefect_api, f"/deployments/{small['id']}/create_flow_run", {"name": "taken"})["id"]
    ask(prefect_api, f"/flow_runs/{run}/set_state", {"state": {"type": "PENDING", "name": "Pending"}, "force": True})
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))  # without a job and a file, each deployed job is looked at
    found = list(check_prefect(None))
    assert levels(found) == {"server": "ok", "database": "ok", "next run": "wrong", "late runs": "ok"}
    assert "of small" in of(found, "next run")
    monkeypatch.setattr("overnight.flows.ledger.late_runs.LATE_AFTER", timedelta())
    found = list(check_prefect(None))
    assert "1 runs should have started" in of(found, "late runs")
    assert "taken (Pending)" in of(found, "late runs")
    job = load_job(deployed / "deployments/job.yaml")
    missing = read_ledger(job)
    [entry] = with_late_runs(job, missing)
    assert entry.status == "missing"
    assert re.fullmatch(r"a run of it has not begun \(Pending since [-0-9]+ [0-9:]+ UTC\)", entry.why[0])
    assert entry.as_json()["why"] == list(entry.why)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert with_late_runs(job, missing) == missing
    ask(prefect_api, f"/flow_runs/{run}", method="DELETE")
    remove_all(prefect_api)
    found = list(check_prefect(None))
    assert "no job is deployed on this server -> To run a job on a schedule" in of(found, "deployments")


@pytest.mark.slow
def test_without_a_file_the_job_s_own_deployment_is_looked_at(
    prefect_api: str, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project / "deployments/job.yaml"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    remove_all(prefect_api)
    job = load_job(path)
    found = list(check_prefect(job, path))
    assert levels(found) == {"server": "ok", "database": "ok", "deployments": "warning"}
    assert f"`overnight deploy {path}`" in of(found, "deployments")
    assert "the next run of small (" in of(found, "deployments")
    try:
        deploy(job_paths=[path])
        ask(prefect_api, POOL, {"concurrency_limit": 3}, "PATCH")  # a size of one's own is well
        found = list(check_prefect(job, path))
        assert {what for what, level in levels(found).items() if level != "ok"} == {"worker", "next run"}
        assert {"work pool overnight", "concurrency limits", "deployments", "automations"} < set(levels(found))
    finally:
        remove_all(prefect_api)


def test_a_server_that_is_stopped_is_told_once_and_without_its_password() -> None:
    with temporary_settings({PREFECT_API_URL: "http://somebody:hunter2@127.0.0.1:9/api"}):
        found = list(check_prefect(None))
    assert levels(found) == {"server": "wrong"}
    assert "127.0.0.1:9/api, found none" in of(found, "server")
    assert "hunter2" not in str(found)


def test_without_an_address_the_local_server_is_looked_at_to_which_deploy_went(
    prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_all(prefect_api)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/overnight-server.json").write_text(json.dumps({"url": prefect_api}))
    (tmp_path / "home/server.pid").write_text((Path(os.environ["PREFECT_HOME"]) / "server.pid").read_text())
    monkeypatch.chdir(tmp_path)
    with temporary_settings({PREFECT_HOME: tmp_path / "home"}, restore_defaults={PREFECT_API_URL}):
        found = list(check_prefect(None))
    assert f"a worker needs PREFECT_API_URL={prefect_api}" in of(found, "server")
    assert "no job is deployed on this server" in of(found, "deployments")


def test_the_command_that_starts_a_worker_names_the_local_server(prefect_api: str) -> None:
    command = "prefect worker start --pool gpu --type process`"
    assert start_worker("gpu", "process") == f"Start one: `PREFECT_API_URL={prefect_api} {command}"
    with temporary_settings({PREFECT_API_URL: "https://prefect.example/api"}):
        assert start_worker("gpu", "process") == f"Start one: `{command}"


def test_a_scheduled_job_without_a_server_is_a_warning(no_server: None, tmp_path: Path) -> None:
    path = write_job(tmp_path, str(tmp_path), str(tmp_path / "out"), schedule={"cron": "0 2 * * *"})
    found = list(check_prefect(load_job(path), path))
    assert levels(found) == {"server": "ok", "next run": "warning"}
    assert f"starts only if `overnight serve {path}` runs then" in of(found, "next run")


def test_storage_that_works_is_left_as_it_was(bucket: tuple[str, FaultyS3], tmp_path: Path, s3: Any) -> None:
    name, _ = bucket
    state = tmp_path / "state"
    path = write_job(tmp_path, f"s3://{name}/in/date={{partition}}/", f"s3://{name}/out", state=str(state))
    assert levels(list(check_storage(load_job(path)))) == {"source": "ok", "sink": "ok", "state": "ok"}
    assert [item["Key"] for item in s3.list_objects_v2(Bucket=name)["Contents"]] == ["in/date=2026-01-02/a.parquet"]
    assert not [path for path in state.rglob("*") if path.is_file()]
    assert state.stat().st_mode & 0o777 == 0o700  # as if a run had made it


@pytest.mark.parametrize(
    ("fault", "told"), [("forbid", "no permission"), ("fill", "no space left"), ("fail", "the storage did not recover")]
)
def test_storage_that_refuses_is_told_in_words(
    bucket: tuple[str, FaultyS3], tmp_path: Path, fault: str, told: str
) -> None:
    name, way = bucket
    job = load_job(write_job(tmp_path, f"s3://{name}/in", f"s3://{name}/out"))
    way.always = fault
    found = list(check_storage(job))
    assert levels(found) == {"source": "wrong", "sink": "wrong"}
    assert told in of(found, "sink")
    assert f"{name}/out" in of(found, "sink")
    assert "published" not in str(found)


def test_each_path_of_a_list_is_looked_at_and_a_pattern_below_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.parquet").touch()
    path = write_job(tmp_path, [f"{tmp_path}/in/*.parquet", f"{tmp_path}/no/{{partition}}"], str(tmp_path / "out"))
    assert [(one.what, one.level, one.found) for one in check_storage(load_job(path))][:2] == [
        ("source", "ok", f"{tmp_path}/in/ can be listed: 1 entries"),
        ("source", "warning", f"{tmp_path}/no is empty"),
    ]


def test_another_job_that_has_not_published_yet_is_a_warning(tmp_path: Path) -> None:
    undated = {"kind": "parquet", "path": str(tmp_path)}
    upstream = jobs.write_job(tmp_path / "first.yaml", source=undated)
    sink = {"kind": "parquet", "path": str(tmp_path / "second")}
    source = {"kind": "job", "job": str(upstream)}
    found = list(check_storage(load_job(jobs.write_job(tmp_path / "second.yaml", name="b", source=source, sink=sink))))
    assert levels(found) == {"source": "warning", "sink": "ok"}
    assert "found it not published" in of(found, "source")


def test_databases_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_TEST_DATABASE", f"{tmp_path}/data.db")
    source = {"kind": "sql", "url": "sqlite:///${DOCTOR_TEST_DATABASE}", "key": "id"}
    source |= {"query": "SELECT * FROM reviews WHERE day = {partition}"}
    sink = {"kind": "sql", "url": f"sqlite:///{tmp_path}/out.db", "table": "stars"}
    job = jobs.load(tmp_path, source=source, sink=sink, state=str(tmp_path / "state"))

    def found() -> list[Finding]:
        return list(check_storage(job))

    assert levels(found()) == {"source": "wrong", "sink": "ok", "state": "ok"}
    assert "unable to open database file" in of(found(), "source")
    assert not (tmp_path / "data.db").exists()  # a look makes no database
    with sqlite3.connect(tmp_path / "data.db") as connection:
        connection.execute("CREATE TABLE others (id INTEGER)")
    assert "no such table: reviews" in of(found(), "source")
    with sqlite3.connect(tmp_path / "data.db") as connection:
        connection.execute("CREATE TABLE reviews (id INTEGER, day TEXT)")
    assert levels(found())["source"] == "warning"
    with sqlite3.connect(tmp_path / "data.db") as connection:
        yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
        connection.execute("INSERT INTO reviews VALUES (1, ?)", [yesterday])
    assert levels(found())["source"] == "ok"
    with sqlite3.connect(tmp_path / "out.db") as connection:
        connection.execute("CREATE TABLE stars (id INTEGER, day TEXT)")
    assert levels(found())["sink"] == "wrong"
    monkeypatch.delenv("DOCTOR_TEST_DATABASE")
    assert "source" not in levels(found())


def test_variables_are_named_and_their_values_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_job(tmp_path, "${DOCTOR_TEST_SOURCE}/in", "${DOCTOR_TEST_SINK}/out")
    monkeypatch.setenv("DOCTOR_TEST_SOURCE", str(tmp_path / "hunter2"))
    found = [*check_environment(path), *check_storage(load_job(path))]
    assert levels(found) == {"environment": "wrong", "source": "wrong"}  # there is no such folder
    assert "DOCTOR_TEST_SINK, not set here" in of(found, "environment")
    assert "hunter2" not in str(found)
    monkeypatch.setenv("DOCTOR_TEST_SINK", "x")
    assert levels(list(check_environment(path))) == {"environment": "ok"}


def test_a_missing_library_is_wrong_unless_the_nodes_of_a_cluster_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = {"kind": "resize_image", "size": 8, "decode": "fast"}
    job = jobs.load(tmp_path, source={"kind": "images", "path": f"{tmp_path}/in"}, preprocess=[step])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert not list(check_libraries(job))
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert levels(list(check_libraries(job))) == {"libraries": "wrong"}
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    [finding] = check_libraries(job)
    assert finding.level == "warning"
    assert finding.found.startswith("kind: resize_image: expected the library cv2 where the job runs, found none.")
    assert finding.found.endswith("pip install 'overnight[fast-decode]'")


def test_installed_packages_are_those_that_are_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(list(check_versions())) == {"versions": "ok"}
    (tmp_path / "constraints.txt").write_text("ray==1.0 \\\n    --hash=sha256:0\nprefect==3.9.1\n")
    (tmp_path / "constraints-torch.txt").write_text("torch==1.5\n")
    monkeypatch.setattr("overnight.flows.doctor.environment.CONSTRAINTS", tmp_path / "constraints.txt")
    [found] = check_versions()
    assert (found.level, "(tested: 1.0)" in found.found, "(tested: 1.5)" in found.found) == ("warning", True, True)
    assert "`pip install prefect==3.9.1 ray==1.0 torch==1.5`" in found.advice


def test_a_ray_that_nobody_answers_for_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setattr("overnight.flows.doctor.ray_cluster.RAY_SECONDS", 8.0)
    [found] = check_ray()
    assert found.level == "wrong"
    assert "the cluster at 127.0.0.1:9" in found.found
    assert "RAY_ADDRESS" in found.advice


def test_an_address_of_ray_client_is_refused_before_anything_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    monkeypatch.setattr("overnight.flows.doctor.ray_cluster.RAY_SECONDS", 0.0)
    [found] = check_ray()
    assert (found.what, found.level) == ("Ray", "wrong")
    assert "found ray://head:10001" in found.found


@pytest.mark.parametrize(
    ("node", "what", "level", "told"),
    [
        ({}, "Ray nodes", None, ""),
        ({"versions": {"ray": "2.60.0", "torch": "2.0"}}, "Ray nodes", "wrong", "torch 2.0, here 2.13.0"),
        ({"versions": None}, "Ray nodes", "warning", "no answer in 20 s from far"),
        ({"gpus": 2.0, "seen": 0}, "GPU", "wrong", "declares GPUs on far, but PyTorch finds none"),
        ({"gpus": 2.0, "seen": 1}, "GPU", "ok", "2 in total"),
        ({"gpus": 2.0, "seen": None}, "GPU", "ok", "2 in total"),
    ],
)
def test_nodes_that_differ_from_here_are_told(node: dict[str, Any], what: str, level: str | None, told: str) -> None:
    here = {"ray": "2.60.0", "torch": "2.13.0"}
    seen = {"host": "far", "versions": here, "gpus": 0.0, "seen": None} | node
    look = {"total": {"CPU": 4.0, "GPU": seen["gpus"]}, "nodes": [seen], "versions": here}
    found = list(judge(look, "the cluster"))
    assert levels(found).get(what) == level
    assert told in of(found, what)


@pytest.mark.parametrize(
    ("model", "most", "level", "told"),
    [
        ({"num_gpus": 1, "accelerator_type": "T4"}, 3, "ok", "1 to 3 workers of m fit on 1 nodes and 3 that it may"),
        ({"num_gpus": 1, "accelerator_type": "T4"}, 0, "wrong", "needs 1 x 1 GPU; the cluster has 0 GPU"),
        ({"num_gpus": 2}, 3, "wrong", "one worker needs 2 GPU on one node; no node has that, and none that may start"),
        ({"workers": 2}, 0, "ok", "2 workers of m fit on 1 nodes"),
    ],
)
def test_a_cluster_that_cannot_grow_to_the_job_is_wrong(
    model: dict[str, Any], most: int, level: str, told: str
) -> None:
    job = jobs.load(
        Path("/x"),
        inference=[{"kind": "python", "target": "m:Model", "name": "m", **model}],
        cluster={"t4": {"resources": {"CPU": 4, "GPU": 1, "accelerator_type:T4": 1}, "max_workers": most}},
    )
    look = {"nodes": [{"resources": {"CPU": 4.0}}], "groups": []}
    found = judge_plan(job, {**look, "may_grow": True})
    assert (found.what, found.level) == ("plan", level)
    assert told in found.found
    alone = judge_plan(job, {**look, "may_grow": False})
    assert alone.is_wrong == ("num_gpus" in model)


def test_weights_that_are_not_there_are_told_and_those_that_are_there_too(tmp_path: Path) -> None:
    job = jobs.load(tmp_path, inference=[{"kind": "onnx", "file": f"{tmp_path}/a.onnx", "columns": ["x"]}])
    [found] = check_models(job)
    assert (found.level, "a.onnx" in found.found) == ("wrong", True)
    (tmp_path / "a.onnx").write_bytes(b"weights")
    assert list(check_models(job)) == [Finding("models", "ok", "onnx: found")]
    assert list(check_models(jobs.load(tmp_path))) == []


def test_checks_run_at_once_and_none_is_waited_for_beyond_its_time() -> None:
    def slow(seconds: float) -> Callable[[], Iterator[Finding]]:
        def look() -> Iterator[Finding]:
            yield Finding("slow", "ok", "begun")
            time.sleep(seconds)
            yield Finding("slow", "ok", "done")

        return look

    def broken() -> Iterator[Finding]:
        raise ValueError("on purpose")

    started = time.monotonic()
    found = run_checks([Check("a", slow(1)), Check("b", slow(60), 1.5), Check("c", broken), Check("d", slow(1))])
    assert time.monotonic() - started < 10
    said = [*("begun", "done"), *("begun", "no answer in 2 s"), "ValueError: on purpose", *("begun", "done")]
    assert [finding.found for finding in found] == said
    assert [finding.level for finding in found] == ["ok", "ok", "ok", "wrong", "wrong", "ok", "ok"]


@pytest.fixture
def no_server(prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Configure neither a Prefect server nor a Ray cluster."""
    for name in ("PREFECT_API_URL", "RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    with temporary_settings({PREFECT_HOME: tmp_path / "home"}, restore_defaults={PREFECT_API_URL}):
        yield


@pytest.mark.parametrize(("sink", "code"), [("out", 0), ("${DOCTOR_TEST_NOBODY}/out", 1)])
@pytest.mark.slow
def test_the_exit_status_says_whether_anything_is_wrong(
    overnight: Overnight, no_server: None, tmp_path: Path, sink: str, code: int
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.parquet").touch()
    path = write_job(tmp_path, "in", sink)
    done = overnight("doctor", str(path), "--json")
    assert done.returncode == code, done.stdout
    found = {finding["what"]: finding["level"] for finding in json.loads(done.stdout)}
    assert (found["Ray"], found["source"], found["server"]) == ("ok", "ok", "ok")
    assert found["environment"] == ("wrong" if code else "ok")
