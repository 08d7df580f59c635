"""The checks of `overnight doctor` on the Prefect server, which they do not change."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import prefect
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import get_current_settings, temporary_settings

from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.apply import expected_server_state
from overnight.flows.deploy.prefect_yaml import PREFECT_FILE, PrefectFile
from overnight.flows.deploy.server_state import ServerState, read_things
from overnight.flows.doctor.examine import Finding, Level
from overnight.flows.doctor.next_runs import check_late_runs, check_next_runs, described, start_worker
from overnight.flows.job.model import Job
from overnight.flows.runs.local_server import client_settings, command_variables, running_server, server_problem
from overnight.tasks.errors import JobError


def _deploy(file: PrefectFile) -> str:
    """Return the advice to deploy."""
    return "Run `overnight deploy JOB.yaml`." if file.is_default else "Run `overnight deploy`."


def check_prefect(job: Job | None, job_path: Path | None = None) -> Iterator[Finding]:
    """Check the server that `overnight deploy` uses, the objects that `deploy` makes there, and the next runs.

    Without a job, check the objects of deployments/prefect.yaml, if it exists, and the next run of each deployed job.
    """
    if url := get_current_settings().api.url:
        yield from _check(url, "", job, job_path)
    elif url := running_server():
        hint = f"; it is the local server, and a worker needs {command_variables(url).strip()}"
        with temporary_settings(client_settings(url)):
            yield from _check(url, hint, job, job_path)
    else:
        yield Finding("server", "ok", "PREFECT_API_URL is not set: `run` and `serve` start a server when they need one")
        if job and job.schedule:
            found = f"{described(job.name, job.schedule)} starts only if `overnight serve {job_path}` runs then"
            yield Finding("next run", "warning", found, "Or set PREFECT_API_URL, and run `overnight deploy`.")


def _check(url: str, hint: str, job: Job | None, job_path: Path | None) -> Iterator[Finding]:
    shown = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
    if problem := server_problem(url):
        yield Finding("server", "wrong", f"PREFECT_API_URL: {problem}", "Set it to the API of a running server.")
        return
    with get_client(sync_client=True, httpx_settings={"timeout": 10}) as client:
        yield from _server(client, shown, hint)
        yield from _deployed(client, job, job_path)


def _deployed(client: SyncPrefectClient, job: Job | None, job_path: Path | None) -> Iterator[Finding]:
    """Check what `overnight deploy` makes on the server, the next runs, and the late ones."""
    try:
        file = _file(job, job_path)
    except JobError as error:
        level: Level = "wrong" if PREFECT_FILE.is_file() else "warning"
        yield Finding("deployments", level, str(error))
        return
    if file:
        things = read_things(client, file)
        if file.is_default and not any(kind == "deployment" and name in file.deployments for kind, name in things):
            told = f"{job_path} is not deployed on this server"
            if job and job.schedule:
                told = f"{described(job.name, job.schedule)} would not start: {told}"
            yield Finding("deployments", "warning", told, f"To run it on a schedule: `overnight deploy {job_path}`.")
            return
        yield from _pools(client, file, things)
        yield from _applied(file, things)
    yield from check_next_runs(client, job)
    yield check_late_runs(client)


def _file(job: Job | None, job_path: Path | None) -> PrefectFile | None:
    """Return the prefect.yaml of this folder if it has the job, otherwise the file that `overnight deploy JOB` makes.

    Return None without both. Raise `JobError` for a wrong file, and for a job that cannot be deployed.
    """
    if PREFECT_FILE.is_file():
        file = PrefectFile()
        if job is None or f"{batch_inference.name}/{job.name}" in file.deployments:
            return file
    return PrefectFile(job_paths=[job_path]) if job_path else None


def _server(client: SyncPrefectClient, shown: str, hint: str) -> Iterator[Finding]:
    there, here = client.api_version(), prefect.__version__
    if there == here:
        yield Finding("server", "ok", f"{shown} answers with Prefect {there}, the version here{hint}")
    else:
        told = f"{shown} runs Prefect {there}, and this machine has {here}"
        yield Finding("server", "warning", told, "Install the same version in both places.")
    try:
        client.request("GET", "/ready")
    except Exception as error:
        told = f"the server does not reach its database: {error}"
        yield Finding("database", "wrong", told, "Read the server's log, and check the address of its database.")
    else:
        yield Finding("database", "ok", "the server reaches its database")


def _pools(client: SyncPrefectClient, file: PrefectFile, things: ServerState) -> Iterator[Finding]:
    for pool in file.work_pools:
        found = things.get(("work pool", pool.name))
        what = f"work pool {pool.name}"
        if found is None:
            yield Finding(what, "wrong", "not on the server", _deploy(file))
            continue
        if found["paused"]:
            yield Finding(what, "warning", "paused: no run starts", "Resume it in the UI.")
        is_own_size = file.is_default or found["concurrency_limit"] == pool.concurrency_limit
        differ = [] if is_own_size else ["its concurrency limit"]
        if not file.is_default and pool.base_job_template not in (None, found["base_job_template"]):
            differ.append("its base job template")
        paused = []
        for queue in pool.work_queues:
            there = things.get(("work queue", f"{pool.name}/{queue.name}"))
            sizes = () if file.is_default else ("priority", "concurrency_limit")
            if there is None or any(there[name] != getattr(queue, name) for name in sizes):
                differ.append(f"queue {queue.name}")
            elif there["paused"]:
                paused.append(queue.name)
        if differ:
            yield Finding(what, "wrong", f"differs from {file.path}: {', '.join(differ)}", _deploy(file))
        else:
            names = ", ".join(queue.name for queue in sorted(pool.work_queues, key=lambda queue: queue.priority))
            yield Finding(
                what, "ok", f"type {found['type']}, {found['concurrency_limit']} runs at a time, queues {names}"
            )
        if paused:
            yield Finding(what, "warning", f"paused queues: {', '.join(paused)}", "Resume them in the UI.")
        yield _worker(client, pool.name, pool.type)


def _worker(client: SyncPrefectClient, pool: str, kind: str) -> Finding:
    workers = client.read_workers_for_work_pool(pool)
    online = [worker for worker in workers if worker.status == "ONLINE"]
    if online:
        return Finding("worker", "ok", f"{len(online)} online for pool {pool}: {', '.join(w.name for w in online[:5])}")
    beats = [worker.last_heartbeat_time for worker in workers if worker.last_heartbeat_time]
    told = f"no worker is online for pool {pool}"
    if beats:
        told += f"; the last heartbeat was {(datetime.now(UTC) - max(beats)).total_seconds():.0f} s ago"
    return Finding("worker", "wrong", told, start_worker(pool, kind))


def _applied(file: PrefectFile, things: ServerState) -> Iterator[Finding]:
    for kind in ("concurrency limit", "deployment", "automation"):
        wanted = [name for of, name in expected_server_state(file) if of == kind]
        missing = [name for name in wanted if (kind, name) not in things]
        asleep = [name for name in wanted if _is_asleep(things.get((kind, name), {}))]
        if missing:
            yield Finding(f"{kind}s", "wrong", f"not on the server: {', '.join(missing)}", _deploy(file))
        if asleep:
            yield Finding(f"{kind}s", "warning", f"paused: {', '.join(asleep)}", "Resume them in the UI.")
        if not (missing or asleep):
            yield Finding(f"{kind}s", "ok", f"{len(wanted)} expected, all on the server")


def _is_asleep(thing: dict[str, object]) -> bool:
    sleeping_schedule = any(str(schedule).endswith(", paused") for schedule in thing.get("schedules", []))  # type: ignore[attr-defined]
    return bool(thing.get("paused") or sleeping_schedule) or False in (thing.get("enabled"), thing.get("active"))
