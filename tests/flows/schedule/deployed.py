"""Runs of a deployment with a schedule, as the server's scheduler and a worker start them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.schedules import CronSchedule
from prefect.flow_engine import run_flow

from overnight.flows.batch_inference import batch_inference
from tests import jobs

NIGHT = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=12)  # no other is due for hours


def start(run: FlowRun) -> State[Any]:
    """Start a flow run as a worker does, and return its final state."""
    ended: State[Any] = run_flow(batch_inference, flow_run=run, return_type="state")  # type: ignore[assignment]
    return ended


class Deployed:
    """A job's deployment on the session's server, whose schedule fires each day at the hour of `NIGHT`."""

    def __init__(self, client: SyncPrefectClient, folder: Path, **schedule: Any) -> None:
        self.client = client
        cron = f"0 {NIGHT.hour} * * *"
        path = jobs.write_job(folder / "job.yaml", schedule={"cron": cron, **schedule})
        self.id = client.create_deployment(
            client.create_flow(batch_inference),
            folder.name,
            schedules=[DeploymentScheduleCreate(schedule=CronSchedule(cron=cron, timezone="UTC"))],
            parameters={"job": str(path)},
        )

    def schedule(self, night: datetime) -> None:
        """Let the server's scheduler create the run of a night."""
        moment = night.isoformat()
        body = {"start_time": moment, "end_time": moment, "min_time": 0.0, "min_runs": 1}
        self.client.request("POST", f"/deployments/{self.id}/schedule", json=body)  # type: ignore[arg-type]

    def due(self) -> list[FlowRun]:
        """The runs whose time has come, the oldest first."""
        mine = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[self.id]))
        found = [run for run in self.client.read_flow_runs(flow_run_filter=mine) if run.expected_start_time]
        due = [run for run in found if run.expected_start_time < datetime.now(UTC)]
        return sorted(due, key=lambda run: (run.expected_start_time, run.created))
