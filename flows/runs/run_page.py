"""The artifacts of a run in the Prefect UI: a summary with the verdict, its quarantine, and the progress of its rows.

The summary is the first artifact in both UIs. The classic one lists the artifacts of the flow before those of its
tasks, and both in no order, so the summary is the only one of the flow. In the new one its id decides, see
`create_listed`. All of it comes from the receipt and the ledger.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import prefect.runtime
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from overnight.flows.ledger.forecast import NEWEST, Experience, Forecast, experience
from overnight.flows.ledger.reader import earlier_receipts
from overnight.flows.report.past import Reason, group_reasons
from overnight.flows.report.spending import spent_in
from overnight.flows.report.verdict import NAMED, Verdict, judge
from overnight.flows.runs import flow_run
from overnight.flows.runs.flow_run import Reasons
from overnight.flows.runs.run import run_option
from overnight.tasks.artifacts import artifact_key, cell, create_listed, dispensable, markdown_table
from overnight.tasks.config.masking import filled_in, masked
from overnight.tasks.engine.progress import Progress
from overnight.tasks.engine.progress_text import line_of
from overnight.tasks.errors import OvernightError, ServiceUnavailable, explain
from overnight.tasks.rows.reasons import short_reason
from overnight.tasks.state import staged_parts
from overnight.tasks.state.lease import LeaseLost
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.run import REPORT, Run
from overnight.tasks.storage.location import Location

REASONS_SHOWN, REASONS_IN_TABLE = 10, 100
MARKS = {"trust": "✅", "look": "⚠️", "no": "❌"}  # of the levels of a verdict
LINKED = {"quarantine": "quarantined rows", "preview": "preview", "plan": "plan"}
COUNTS = {
    "rows_in": "rows read",
    "rows_out": "rows published",
    "rows_filtered": "rows filtered",
    "rows_duplicate": "of these, duplicates",
    "rows_quarantined": "rows quarantined",
    "rows_resumed": "rows taken from an earlier attempt",
    "seconds": "seconds",
    "rows_per_second": "rows per second",
}
Links = Mapping[str, str]  # the name and the address of other artifacts
Places = Mapping[str, str]  # the name and the path of files or tables


def show_published(run: Run, receipt: Mapping[str, Any], verdict: Verdict | None, table: str) -> str:
    """Show a run that published in the Prefect UI. Return its message: the verdict and the quarantine's reasons."""
    file = run.ledger / "quarantine" / f"quarantine-{receipt['generation']}.parquet"
    rows = _quarantine(file) if receipt["rows_quarantined"] else staged_parts.QUARANTINE.empty_table()
    reasons = group_reasons(rows.to_pylist())
    places = {
        "rows": filled_in(table),
        "report": filled_in(str(run.ledger / REPORT)),
        "receipt": filled_in(str(run.ledger / "receipt.json")),
        "quarantine": filled_in(str(file)) if len(rows) else "",
        "output of your code": filled_in(receipt.get("logs") or ""),
    }
    message = flow_run.publish_message(receipt, in_few_words(reasons), verdict.sentence if verdict else "")
    sentence = verdict.sentence if verdict else message
    _show(run, sentence, reasons, lambda links: of_published(run, receipt, verdict, reasons, places, links))
    return message


@contextlib.contextmanager
def failure_shown(run: Run) -> Iterator[None]:
    """Show the run in the Prefect UI if the body fails, with the quarantined rows that it kept."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, ServiceUnavailable | LeaseLost):
            _show_failed(run, explain(error, flow_run.stage()))
        raise


@dispensable()
def _show_failed(run: Run, error: OvernightError) -> None:
    rows = _quarantine(run.failure_quarantine)
    reasons = group_reasons(rows.to_pylist())
    record = {"status": error.status, "stage": error.stage, "error_message": error.message}
    verdict = judge(record, (), (), published_before=(run.ledger / "receipt.json").exists())
    places = {
        "report": filled_in(str(run.ledger / REPORT)),
        "failure": filled_in(str(run.ledger / "failure.json")),
        "quarantine": filled_in(str(run.failure_quarantine)) if len(rows) else "",
    }
    _show(run, verdict.sentence, reasons, lambda links: of_failed(run, error, verdict, reasons, places, links))


def _quarantine(file: Location) -> pa.Table:
    """Return the rows of a quarantine, or none if it cannot be read: it only informs."""
    with dispensable(), contextlib.suppress(FileNotFoundError), file.open() as content:
        return pq.ParquetFile(content).read()
    return staged_parts.QUARANTINE.empty_table()


@dispensable()
def _show(run: Run, verdict: str, reasons: Sequence[Reason], summary: Callable[[Links], str]) -> None:
    run_id = UUID(prefect.runtime.flow_run.id)
    with get_client(sync_client=True) as client:
        if count := sum(reason.count for reason in reasons):
            excess = f", the first {REASONS_IN_TABLE} reasons" * (len(reasons) > REASONS_IN_TABLE)
            create_listed(
                client,
                ArtifactCreate(
                    key=artifact_key(run.job, "quarantine"),
                    type="table",
                    description=f"{count:,} quarantined row{'s' * (count > 1)} of {run.job}/{run.partition}, "
                    f"by reason{excess}",
                    data=json.dumps(quarantine_table(reasons)),  # as Prefect's own tables
                    flow_run_id=run_id,
                    task_run_id=flow_run.task_run_id(),
                ),
            )
        artifacts = _artifacts(client, run_id)
        create_listed(
            client,
            ArtifactCreate(
                key=artifact_key(run.job, "summary"),
                type="markdown",
                description=masked(verdict),  # Prefect's page shows its start without a click
                data=summary(_links(client, run, artifacts)),
                flow_run_id=run_id,
            ),
            is_first=True,
        )


def _artifacts(client: SyncPrefectClient, run_id: UUID) -> dict[str | None, UUID]:
    of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    return {artifact.key: artifact.id for artifact in client.read_artifacts(artifact_filter=of_run)}


def quarantine_table(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    """Return a line for each of the most frequent reasons. The UI's table cuts off its last columns."""
    return [
        {
            "rows": reason.count,
            "reason": _in_few_words(reason),
            "for example": ", ".join(str(row["row_id"]) for row in reason.rows),
            "stage": reason.stage,
            "error_type": reason.error_type,
            "error_message": reason.message,
        }
        for reason in reasons[:REASONS_IN_TABLE]
    ]


def in_few_words(reasons: Sequence[Reason]) -> Reasons:
    """Return each reason in a few words with its number of rows, the most frequent first."""
    counts = Counter[str]()
    for reason in reasons:
        counts[_in_few_words(reason)] += reason.count
    return counts.most_common()


def _in_few_words(reason: Reason) -> str:
    return short_reason(reason.error_type, reason.message, str(reason.rows[0]["uri"] or ""))


def _links(client: SyncPrefectClient, run: Run, ids: Mapping[str | None, UUID]) -> dict[str, str]:
    links = {}
    for artifact, name in LINKED.items():
        key = artifact_key(run.job, artifact)
        if key in ids:
            links[name] = f"/artifacts/artifact/{ids[key]}"
    links["all partitions"] = f"/artifacts/key/{artifact_key(run.job, 'partitions')}"
    with contextlib.suppress(ObjectNotFound):  # the job may have no deployment on this server
        deployment = client.read_deployment_by_name(f"{prefect.runtime.flow_run.flow_name}/{run.job}")
        links["the deployment of this job"] = f"/deployments/deployment/{deployment.id}"
    if dashboard := flow_run.of_task_runner("dashboard", ""):
        links["Ray's dashboard"] = dashboard
    return links


def of_published(
    run: Run,
    receipt: Mapping[str, Any],
    verdict: Verdict | None,
    reasons: Sequence[Reason],
    places: Places,
    links: Links,
) -> str:
    """Return the summary of a run that published, as Markdown. Without a verdict, it has the counts in its place."""
    frequent = in_few_words(reasons)
    title, warnings = "✅ Published", receipt.get("warnings", [])
    if verdict:
        title, warnings = f"{MARKS[verdict.level]} {verdict.title}", warnings[NAMED:]  # it has the first ones
    names = COUNTS | ({"rows_out": "rows in the sample"} if receipt["limit_rows"] else {})
    counts = {name: receipt[key] for key, name in names.items() if receipt.get(key) or key in ("rows_in", "rows_out")}
    counts |= spent_in(receipt)
    stages = [
        f"| {stage} | {figures['rows']:,} | {figures['seconds']:,.1f} |"
        for stage, figures in receipt["stages"].items()
        if figures["rows"]
    ]
    return _joined(
        f"# {title}: {cell(run.job)}/{cell(run.partition)}",
        f"**{cell(verdict.sentence if verdict else flow_run.publish_message(receipt, frequent))}**",
        "\n".join(f"- ⚠️ {cell(warning)}" for warning in warnings),
        markdown_table(counts),
        _reasons(frequent),
        f"**Advice**: {cell(receipt['performance']['advice'])}.",
        _links_and_places(links, places),
        "\n".join(["| stage | rows | worker seconds |", "| --- | ---: | ---: |", *stages]) if stages else "",
    )


def of_failed(
    run: Run, error: OvernightError, verdict: Verdict, reasons: Sequence[Reason], places: Places, links: Links
) -> str:
    """Return the summary of a run that failed, as Markdown, with the whole message of its error."""
    option = run_option(run.partition)
    frequent = in_few_words(reasons)
    count = sum(number for _, number in frequent)
    is_in_sentence = error.message.rstrip(".") in verdict.sentence
    return _joined(
        f"# ❌ {verdict.title}: {cell(run.job)}/{cell(run.partition)} failed in {error.stage}",
        f"**{cell(verdict.sentence)}**",
        "" if is_in_sentence else "\n".join(f"> {cell(line)}  " for line in error.message.splitlines()),
        f"{count:,} row{'s' * (count != 1)} quarantined until then." if frequent else "",
        _reasons(frequent),
        f"**Next**: correct the cause, then `overnight run JOB.yaml{option}`, or Retry on this page. "
        "The rows that are done are kept.",
        _links_and_places(links, places),
    )


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _reasons(why: Reasons) -> str:
    if not why:
        return ""
    lines = ["| rows | why they are quarantined |", "| ---: | --- |"]
    lines += [f"| {count:,} | {cell(reason)} |" for reason, count in why[:REASONS_SHOWN]]
    if len(why) > REASONS_SHOWN:
        lines += ["", f"and {len(why) - REASONS_SHOWN:,} other reasons"]
    return "\n".join(lines)


def _links_and_places(links: Links, places: Places) -> str:
    sentence = f"**See** {' · '.join(f'[{name}]({address})' for name, address in links.items())}" if links else ""
    lines = [f"- {name}: `{path.replace('`', '')}`" for name, path in places.items() if path]
    return _joined(sentence, "\n".join(lines))


@contextlib.contextmanager
def progress_shown(run: Run) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows a progress, with the time left, in one artifact of the current task.

    The description has all facts, and the metadata the progress itself, for the terminal.
    """
    artifact_id: UUID | None = None
    forecast = Forecast(_experience(run), _size(run))
    # One client and one change of settings serve all updates, because making them costs 27 and 45 ms of CPU. The client
    # would retry for minutes on a server that it reached before; the next update is retry enough.
    with get_client(sync_client=True) as client, temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):

        def show(progress: Progress) -> None:
            nonlocal artifact_id
            progress = forecast.added_to(progress)
            content: dict[str, Any] = {
                "data": round(100 * (progress.share("write") or 0.0), 1),
                "description": masked(line_of(progress)),
                "metadata_": {"partition": run.partition, **progress.as_texts()},
            }
            if artifact_id:
                client.update_artifact(artifact_id, ArtifactUpdate(**content))
                return
            owner = {"flow_run_id": prefect.runtime.flow_run.id, "task_run_id": prefect.runtime.task_run.id}
            key = artifact_key(run.job, "progress")
            artifact_id = create_listed(client, ArtifactCreate(key=key, type="progress", **owner, **content))

        yield show


def _size(run: Run) -> int | None:
    with dispensable():
        table, _ = read_manifest(run.manifest, ["size"])
        return int(pc.sum(table["size"]).as_py() or 0)
    return None


def _experience(run: Run) -> Experience:
    """Return what earlier receipts show of the run's rate; nothing if they cannot be read, because it only informs."""
    with dispensable():
        receipts = earlier_receipts(run.state, run.partition_column, run.job, NEWEST, run.ledger.name)
        return experience(receipts, run.fingerprint)
    return Experience()
