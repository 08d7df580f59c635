"""A worker of the pool `overnight` that runs flows in its own process, one after the other, on one Ray."""

import time
from datetime import UTC, datetime
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow

from overnight.flows.backfill import backfill
from overnight.flows.batch_inference import batch_inference
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.tasks.errors import OvernightError

TRIES = 10  # to start Ray, which gives itself 30 s, on a busy machine


def started_runner() -> OvernightTaskRunner[Any]:
    for number in range(TRIES):
        runner: OvernightTaskRunner[Any] = OvernightTaskRunner()
        try:
            return runner.__enter__()
        except OvernightError as error:
            print(f"Ray, try {number + 1}: {error}", flush=True)
    raise SystemExit("Ray did not start")


def due_runs(client: SyncPrefectClient) -> list[FlowRun]:
    body: dict[str, Any] = {"scheduled_before": datetime.now(UTC).isoformat()}
    answer = client.request("POST", "/work_pools/overnight/get_scheduled_flow_runs", json=body)  # type: ignore[arg-type]
    runs = [FlowRun.model_validate(entry["flow_run"]) for entry in answer.json()]
    return sorted(runs, key=lambda run: (run.expected_start_time, run.created))


def main() -> None:
    started_runner()
    with get_client(sync_client=True) as client:
        flows = {client.create_flow(flow): flow for flow in (batch_inference, backfill)}
        print("Ray started", flush=True)
        while True:
            for run in due_runs(client):
                began = time.monotonic()
                state: Any = run_flow(flows[run.flow_id], flow_run=run, return_type="state")
                print(f"{run.name} {state.name} {time.monotonic() - began:.1f} s", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
