"""The checks of `overnight doctor` on the Prefect server, which they do not change."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import prefect
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import get_current_settings, temporary_settings

from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.apply import expected_server_state
from overnight.flows.deploy.prefect_yaml import PREFECT_FILE, PrefectFile, WorkPool
from overnight.flows.deploy.server_state import ServerState, read_things
from overnight.flows.doctor.examine import Finding, Level
from overnight.flows.doctor.next_runs import IN_UI, check_late_runs, check_next_runs, described, start_worker
from overnight.flows.job.model import Job
from overnight.flows.runs.local_server import client_settings, command_variables, running_server, server_problem
from overnight.tasks.errors import JobError


def check_prefect(job: Job | None, job_path: Path | None = None) -> Iterator[Finding]:
    """Check the server that `overnight deploy` uses, the objects that `deploy` makes there, and the next runs."""
    if url := get_current_settings().api.url:
        yield from _check(url, "", job, job_path)
    elif url := running_server():
        hint = f"; it is the local server, and a worker needs {command_variables(url).strip()}"
        with temporary_settings(client_settings(url)):
            yield from _check(url, hint, job, job_path)
    else:
        yield Finding("server", "ok", "PREFECT_API_URL is not set: `run` and `serve` start a server when they need one")
        if job and job.schedule:
            sentence = f"{described(job.name, job.schedule)} starts only if `overnight serve {job_path}` runs then"
            yield Finding("next run", "warning", sentence, "Or set PREFECT_API_URL, and run `overnight deploy`.")


def _check(url: str, hint: str, job: Job | None, job_path: Path | None) -> Iterator[Finding]:
    if problem := server_problem(url):
        yield Finding("server", "wrong", f"PREFECT_API_URL: {problem}", "Set it to the API of a running server.")
        return
    address = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
    with get_client(sync_client=True, httpx_settings={"timeout": 10}) as client:
        yield from _server(client, address, hint)
        yield from _deployed(client, job, job_path)


def _server(client: SyncPrefectClient, address: str, hint: str) -> Iterator[Finding]:
    version = client.api_version()
    if version == prefect.__version__:
        yield Finding("server", "ok", f"{address} answers with Prefect {version}, the version here{hint}")
    else:
        sentence = f"{address} runs Prefect {version}, and this machine has {prefect.__version__}"
        yield Finding("server", "warning", sentence, "Install the same version in both places.")
    try:
        client.request("GET", "/ready")
    except Exception as error:
        sentence = f"the server does not reach its database: {error}"
        yield Finding("database", "wrong", sentence, "Read the server's log, and check the address of its database.")
    else:
        yield Finding("database", "ok", "the server reaches its database")


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
        if file.is_default and not any(("deployment", name) in things for name in file.deployments):
            sentence = f"{job_path} is not deployed on this server"
            if job and job.schedule:
                sentence = f"{described(job.name, job.schedule)} would not start: {sentence}"
            advice = f"To run it on a schedule: `overnight deploy {job_path}`."
            yield Finding("deployments", "warning", sentence, advice)
            return
        for pool in file.work_pools:
            yield from _pool(client, file, pool, things)
        yield from _other_objects(file, things)
    yield from check_next_runs(client, job)
    yield check_late_runs(client)


def _file(job: Job | None, job_path: Path | None) -> PrefectFile | None:
    """Return the prefect.yaml of this folder if it has the job, otherwise what `overnight deploy JOB` would apply."""
    if PREFECT_FILE.is_file():
        file = PrefectFile()
        if job is None or f"{batch_inference.name}/{job.name}" in file.deployments:
            return file
    return PrefectFile(job_paths=[job_path]) if job_path else None


def _deploy(file: PrefectFile) -> str:
    return "Run `overnight deploy JOB.yaml`." if file.is_default else "Run `overnight deploy`."


def _pool(client: SyncPrefectClient, file: PrefectFile, pool: WorkPool, things: ServerState) -> Iterator[Finding]:
    title = f"work pool {pool.name}"
    settings = things.get(("work pool", pool.name))
    if settings is None:
        yield Finding(title, "wrong", "not on the server", _deploy(file))
        return
    if settings["paused"]:
        yield Finding(title, "warning", "paused: no run starts", IN_UI)
    if differences := list(_differences(file, pool, things)):
        yield Finding(title, "wrong", f"differs from {file.path}: {', '.join(differences)}", _deploy(file))
    else:
        names = ", ".join(queue.name for queue in sorted(pool.work_queues, key=lambda queue: queue.priority))
        limit = settings["concurrency_limit"]
        yield Finding(title, "ok", f"type {settings['type']}, {limit} runs at a time, queues {names}")
    queues = {queue.name: things.get(("work queue", f"{pool.name}/{queue.name}"), {}) for queue in pool.work_queues}
    if asleep := [name for name, queue in queues.items() if queue.get("paused")]:
        yield Finding(title, "warning", f"paused queues: {', '.join(asleep)}", "Resume them in the UI.")
    yield _worker(client, pool.name, pool.type)


def _differences(file: PrefectFile, pool: WorkPool, things: ServerState) -> Iterator[str]:
    """Yield what of a pool is not as its file defines it. With the file of the package, sizes may differ."""
    settings = things["work pool", pool.name]
    if not file.is_default:
        if settings["concurrency_limit"] != pool.concurrency_limit:
            yield "its concurrency limit"
        if pool.base_job_template not in (None, settings["base_job_template"]):
            yield "its base job template"
    for queue in pool.work_queues:
        on_server = things.get(("work queue", f"{pool.name}/{queue.name}"))
        sizes = () if file.is_default else ("priority", "concurrency_limit")
        if on_server is None or any(on_server[name] != getattr(queue, name) for name in sizes):
            yield f"queue {queue.name}"


def _worker(client: SyncPrefectClient, pool: str, kind: str) -> Finding:
    workers = client.read_workers_for_work_pool(pool)
    names = [worker.name for worker in workers if worker.status == "ONLINE"]
    if names:
        return Finding("worker", "ok", f"{len(names)} online for pool {pool}: {', '.join(names[:5])}")
    beats = [worker.last_heartbeat_time for worker in workers if worker.last_heartbeat_time]
    sentence = f"no worker is online for pool {pool}"
    if beats:
        sentence += f"; the last heartbeat was {(datetime.now(UTC) - max(beats)).total_seconds():.0f} s ago"
    return Finding("worker", "wrong", sentence, start_worker(pool, kind))


def _other_objects(file: PrefectFile, things: ServerState) -> Iterator[Finding]:
    for kind in ("concurrency limit", "deployment", "automation"):
        names = [name for object_kind, name in expected_server_state(file) if object_kind == kind]
        missing = [name for name in names if (kind, name) not in things]
        asleep = [name for name in names if _is_asleep(things.get((kind, name), {}))]
        if missing:
            yield Finding(f"{kind}s", "wrong", f"not on the server: {', '.join(missing)}", _deploy(file))
        if asleep:
            yield Finding(f"{kind}s", "warning", f"paused: {', '.join(asleep)}", "Resume them in the UI.")
        if not (missing or asleep):
            yield Finding(f"{kind}s", "ok", f"{len(names)} expected, all on the server")


def _is_asleep(thing: dict[str, Any]) -> bool:
    if thing.get("paused") or False in (thing.get("enabled"), thing.get("active")):
        return True
    return any(str(schedule).endswith(", paused") for schedule in thing.get("schedules", []))
