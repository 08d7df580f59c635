"""The artifacts of a run in the Prefect UI: a summary, its quarantine, and the progress of its rows.

Prefect's page lists the artifacts of the flow before those of its tasks, and both in no order. So the summary is the
only one of the flow, and the table of quarantined rows belongs to the last task.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import prefect.runtime
import pyarrow as pa
import pyarrow.parquet as pq
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from overnight.flows.runs import current_task, run_sentences, run_summary
from overnight.tasks.artifacts import artifact_key, dispensable
from overnight.tasks.config.masking import filled_in
from overnight.tasks.errors import OvernightError, ServiceUnavailable, explain
from overnight.tasks.rows.reasons import count_reasons, short_reason
from overnight.tasks.state import staged_parts
from overnight.tasks.state.lease import LeaseLost
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

ROWS_SHOWN = 100  # of the quarantine
LINKED = {"quarantine": "quarantined rows", "preview": "preview", "plan": "plan"}
Reasons = list[tuple[str, int]]


def show_published(run: Run, receipt: Mapping[str, Any], table: str) -> Reasons:
    """Show a run that published in the Prefect UI, and return the reasons of its quarantined rows.

    `table` is the place of the published rows. A reason comes with its number of rows.
    """
    place = run.ledger / "quarantine" / f"quarantine-{receipt['generation']}.parquet"
    rows = _quarantine(place) if receipt["rows_quarantined"] else staged_parts.QUARANTINE.empty_table()
    why = count_reasons(rows.to_pylist())
    places = {
        "rows": filled_in(table),
        "receipt": filled_in(str(run.ledger / "receipt.json")),
        "quarantine": filled_in(str(place)) if len(rows) else "",
        "output of your code": filled_in(receipt.get("logs") or ""),
    }
    verdict = run_sentences.published(receipt, why)
    _show(run, verdict, rows, lambda links: run_summary.of_published(run, receipt, why, places, links))
    return why


@contextlib.contextmanager
def failure_shown(run: Run) -> Iterator[None]:
    """Show the run in the Prefect UI if the body fails, with the quarantined rows that it kept.

    Do not show it if the storage is away or another run has taken the partition over.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, ServiceUnavailable | LeaseLost):  # storage is away, or another run has the partition
            _show_failed(run, explain(error, current_task.stage()))
        raise


@dispensable()
def _show_failed(run: Run, error: OvernightError) -> None:
    rows = _quarantine(run.failure_quarantine)
    why = count_reasons(rows.to_pylist())
    places = {
        "failure": filled_in(str(run.ledger / "failure.json")),
        "quarantine": filled_in(str(run.failure_quarantine)) if len(rows) else "",
    }
    verdict = run_sentences.failed(error)
    _show(run, verdict, rows, lambda links: run_summary.of_failed(run, error, why, places, links))


def _quarantine(place: Location) -> pa.Table:
    """Return the rows of a quarantine, or none if it cannot be read: it only informs."""
    with dispensable(), contextlib.suppress(FileNotFoundError), place.open() as file:
        return pq.ParquetFile(file).read()
    return staged_parts.QUARANTINE.empty_table()


@dispensable()
def _show(run: Run, verdict: str, quarantine: pa.Table, summary: Callable[[Mapping[str, str]], str]) -> None:
    flow_run = UUID(prefect.runtime.flow_run.id)
    with get_client(sync_client=True) as client:
        if len(quarantine):
            _show_quarantine(client, run, flow_run, quarantine)
        client.create_artifact(
            ArtifactCreate(
                key=artifact_key(run.job, "summary"),
                type="markdown",
                description=verdict,  # Prefect's page shows its start without a click
                data=summary(_links(client, run, flow_run)),
                flow_run_id=flow_run,
            )
        )


def _show_quarantine(client: SyncPrefectClient, run: Run, flow_run: UUID, rows: pa.Table) -> None:
    shown = f", the first {ROWS_SHOWN}" if len(rows) > ROWS_SHOWN else ""
    client.create_artifact(
        ArtifactCreate(
            key=artifact_key(run.job, "quarantine"),
            type="table",
            description=f"{len(rows):,} quarantined row{'s' * (len(rows) > 1)} of {run.job}/{run.partition}{shown}",
            data=json.dumps(quarantine_table(rows[:ROWS_SHOWN].to_pylist())),  # as Prefect's own table artifacts
            flow_run_id=flow_run,
            task_run_id=current_task.task_run_id(),
        )
    )


def quarantine_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return quarantined rows with their columns in the order of the UI's table, which cuts off what is too wide.

    So the short reason and the row come first, and the whole message and the URI last.
    """
    return [
        {
            "reason": short_reason(row["error_type"], row["error_message"], row["uri"] or ""),
            "row_id": row["row_id"],
            "stage": row["stage"],
            "error_type": row["error_type"],
            "error_message": row["error_message"],
            "uri": row["uri"],
        }
        for row in rows
    ]


def _links(client: SyncPrefectClient, run: Run, flow_run: UUID) -> dict[str, str]:
    """Return the names and addresses of the run's other artifacts, the job's partitions and Ray's dashboard."""
    mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run]))
    found = {one.key: one.id for one in client.read_artifacts(artifact_filter=mine)}
    keys = {artifact_key(run.job, what): name for what, name in LINKED.items()}
    links = {name: f"/artifacts/artifact/{found[key]}" for key, name in keys.items() if key in found}
    links |= {"all partitions": f"/artifacts/key/{artifact_key(run.job, 'partitions')}"}
    dashboard = getattr(getattr(FlowRunContext.get(), "task_runner", None), "dashboard", "")
    return links | ({"Ray's dashboard": dashboard} if dashboard else {})


@contextlib.contextmanager
def progress_shown(run: Run) -> Iterator[Callable[[Mapping[str, tuple[float | None, str]]], None]]:
    """Yield a function that shows the progress of all stages in one artifact of the current task.

    It takes a percentage, None if it is unknown, and a text for each stage. The artifact's own percentage is that of
    the last stage. The metadata has the percentage of each stage, for bars in the terminal; it is empty if unknown.
    """
    made: list[UUID] = []
    # One client and one change of settings serve all updates, because making them costs 27 and 45 ms of CPU. The client
    # would retry for minutes on a server that it reached before; the next update is retry enough.
    with get_client(sync_client=True) as client, temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):

        def show(stages: Mapping[str, tuple[float | None, str]]) -> None:
            shown: dict[str, Any] = {
                "data": round([share for share, _ in stages.values()][-1] or 0.0, 1),
                "description": " · ".join(text for _, text in stages.values()),
                "metadata_": {stage: "" if share is None else f"{share:.1f}" for stage, (share, _) in stages.items()},
            }
            if made:
                client.update_artifact(made[0], ArtifactUpdate(**shown))
                return
            here = {"flow_run_id": prefect.runtime.flow_run.id, "task_run_id": prefect.runtime.task_run.id}
            key = artifact_key(run.job, "progress")
            made.append(client.create_artifact(ArtifactCreate(key=key, type="progress", **here, **shown)).id)

        yield show
