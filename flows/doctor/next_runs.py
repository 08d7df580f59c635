"""The checks of `overnight doctor` on scheduled runs: whether the next ones would start, and which ones are late."""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import DeploymentStatus, Worker
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.settings import get_current_settings

from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.deployments import deployed_flows
from overnight.flows.deploy.server_state import read_deployments
from overnight.flows.doctor.examine import Finding, Level
from overnight.flows.job.model import Job
from overnight.flows.job.schedule import Schedule
from overnight.flows.ledger.late_runs import late_runs
from overnight.flows.ledger.staleness import some
from overnight.flows.runs.local_server import command_variables, running_server
from overnight.flows.schedule.cron import next_cron_time

Obstacle = tuple[Level, str, str]  # the reason that a run would not start, and advice
IN_UI = "Resume it in the UI."


def next_runs() -> list[Finding]:
    """Return a finding for the next run of each job on the configured server: whether it would start, or why not."""
    with get_client(sync_client=True) as client:
        return list(check_next_runs(client, None))


def check_next_runs(client: SyncPrefectClient, job: Job | None) -> Iterator[Finding]:
    """Check that the next scheduled run of the job would start. Without a job, check this for each deployed job."""
    deployments = read_deployments(client, {batch_inference.name}).values()
    for deployment in sorted(deployments, key=lambda deployment: deployment.name):
        if job is None or deployment.name == job.name:
            yield from _next_run(client, deployment, job)
    if job is None and not deployments:
        advice = "To run a job on a schedule: `overnight deploy JOB.yaml`."
        yield Finding("deployments", "warning", "no job is deployed on this server", advice)


def described(name: str, schedule: Schedule) -> str:
    """Return a job's next run in words, such as `the next run of sentences (2026-11-27 02:00 Europe/Berlin)`."""
    fire = next_cron_time(schedule, datetime.now(UTC))
    if fire is None:
        return f"the next run of {name} ({schedule.cron}, which never comes)"
    moment = fire.astimezone(ZoneInfo(schedule.timezone))
    return f"the next run of {name} ({moment:%Y-%m-%d %H:%M} {schedule.timezone})"


def _next_run(client: SyncPrefectClient, deployment: DeploymentResponse, job: Job | None) -> Iterator[Finding]:
    crons = [entry.schedule for entry in deployment.schedules if isinstance(entry.schedule, CronSchedule)]
    # without validation, because a user may have made a schedule such as @daily in the UI
    schedules = [Schedule.model_construct(cron=cron.cron, timezone=cron.timezone or "UTC") for cron in crons]
    times = [f"{schedule.cron} {schedule.timezone}" for schedule in schedules]
    for schedule in [job.schedule] if job and job.schedule else schedules:
        run = described(deployment.name, schedule)
        if f"{schedule.cron} {schedule.timezone}" not in times:
            reason = f"the server has another schedule, {', '.join(times) or 'none'}"
            yield Finding("next run", "wrong", f"{run} would not start: {reason}", "Run `overnight deploy JOB.yaml`.")
        elif obstacle := _obstacle(client, deployment):
            level, reason, advice = obstacle
            yield Finding("next run", level, f"{run} would not start: {reason}", advice)
        else:
            yield Finding("next run", "ok", f"{run} would start")


def _obstacle(client: SyncPrefectClient, deployment: DeploymentResponse) -> Obstacle | None:
    """Return the first reason why no scheduled run of a deployment would start, or None."""
    if deployment.paused:
        return "warning", "its deployment is paused", IN_UI
    if not any(schedule.active for schedule in deployment.schedules):
        return "warning", "its schedule is paused", IN_UI
    name, queue = deployment.work_pool_name, deployment.work_queue_name or "default"
    if not name:
        if deployment.status == DeploymentStatus.READY:
            return None
        return "wrong", "no process serves it", "Start one: `overnight serve JOB.yaml`."
    pool = client.read_work_pool(name)
    if pool.is_paused:
        return "warning", f"work pool {name} is paused", IN_UI
    if client.read_work_queue_by_name(queue, work_pool_name=name).is_paused:
        return "warning", f"queue {queue} of work pool {name} is paused", IN_UI
    if not online_workers(client, name):
        return "wrong", f"no worker polls work pool {name}", start_worker(name, pool.type)
    return None


def start_worker(pool: str, kind: str) -> str:
    """Return the advice to start a worker for a work pool. For the local server, the command has its address."""
    url = get_current_settings().api.url
    variables = command_variables(url) if url and url == running_server() else ""
    return f"Start one: `{variables}prefect worker start --pool {pool} --type {kind}`"


def online_workers(client: SyncPrefectClient, pool: str) -> list[Worker]:
    return [worker for worker in client.read_workers_for_work_pool(pool) if worker.status == "ONLINE"]


def check_late_runs(client: SyncPrefectClient) -> Finding:
    late = late_runs(client, deployed_flows())
    if not late:
        return Finding("late runs", "ok", "none")
    since = late[0].expected_start_time or datetime.now(UTC)
    queues = ", ".join(sorted({run.work_queue_name or "no queue" for run in late}))
    names = some([f"{run.name} ({run.state_name})" for run in late])
    sentence = f"{len(late)} runs should have started, the first at {since:%Y-%m-%d %H:%M} UTC, in {queues}"
    advice = "Check the worker, and the runs that hold the pool's slots."
    return Finding("late runs", "warning", f"{sentence}: {names}", advice)
